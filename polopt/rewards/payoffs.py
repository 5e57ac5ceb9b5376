"""Payoffs that an answer lays out in its text: what each of its moves would be worth to the user and to the model."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.rewards.blocks import TextReward, block
from polopt.situation import Situation

# What a user's question may be, clear or vague, by what may be done: answer, ask back, or both.
CELLS = ("DQ_DA", "DQ_CQ", "DQ_AQ", "VQ_DA", "VQ_CQ", "VQ_AQ")
PARTIES = ("user", "LLM")
STRAIGHT = str.maketrans("\u201c\u201d\u2018\u2019", "\"\"''")


def payoffs(text: str) -> Tensor | None:
    """[2, 6] payoffs of the user and of the model in `CELLS`, from {"DQ_DA": {"user": 1.0, "LLM": 2.0}, ...} as JSON or
    as a literal of Python, where curly quotes count as straight ones; None if it is anything else, or not finite."""
    cells = _literal(text)
    if not isinstance(cells, dict) or set(cells) != set(CELLS):
        return None
    if not all(isinstance(cell, dict) and set(cell) == set(PARTIES) for cell in cells.values()):
        return None
    values = [[cells[cell][party] for cell in CELLS] for party in PARTIES]
    numbers = [v for row in values for v in row]
    if not all(isinstance(v, (int, float)) and math.isfinite(v) for v in numbers):
        return None
    return torch.tensor(values, dtype=torch.float64)


def _literal(text: str) -> Any:
    """What JSON, or else a literal of Python, stands for; None for neither."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(text.strip().translate(STRAIGHT))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def distinct(found: Tensor, gap: float = 0.1) -> float:
    """How much [2, N] payoffs tell the parties apart: half for each choice in which they differ, half for each in which
    they differ by more than `gap` of the larger, over N choices."""
    apart = (found[0] - found[1]).abs()
    size = found.abs().amax(0)
    return float(((apart > 0).double() + (apart > gap * size).double()).mean() / 2)


class DistinctPayoffs(TextReward):
    """`distinct` of the payoffs in the answer's block `block`; 0 where there are none that can be read.

    It pays for numbers that differ, not for true ones: any unequal table has all of it. Source: GTAlign,
    arXiv:2510.08872.
    """

    block: str = "payoff"
    gap: float = 0.1

    def read(self, text: str, row: int, experience: Experience) -> float:
        found = payoffs(block(text, self.block) or "")
        return 0.0 if found is None else distinct(found, self.gap)


class LegiblePayoffs(TextReward):
    """1 where the answer's block `block` holds payoffs that can be read, else 0."""

    block: str = "payoff"

    def cautions(self, situation: Situation) -> Iterator[str]:
        shown = [solution for solution in situation.solutions if solution is not None]
        if shown and not any(payoffs(block(text, self.block) or "") is not None for text in shown):
            yield (
                f"none of the first {len(shown)} solutions has a block <{self.block}> that can be read, without which "
                "an answer is paid nothing; teach the policy to write it first, or take a reward that does without, as "
                "gtalign's with blocks: false"
            )

    def read(self, text: str, row: int, experience: Experience) -> float:
        return float(payoffs(block(text, self.block) or "") is not None)
