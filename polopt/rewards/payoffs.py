"""Rewards of payoff tables in an answer's text: the utilities of each response strategy for the user and the model."""

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

# The user's question, direct or vague, by the response: answer, clarifying question, or both.
CELLS = ("DQ_DA", "DQ_CQ", "DQ_AQ", "VQ_DA", "VQ_CQ", "VQ_AQ")
PARTIES = ("user", "LLM")
STRAIGHT = str.maketrans("\u201c\u201d\u2018\u2019", "\"\"''")


def payoffs(text: str) -> Tensor | None:
    """Parses payoffs [2, 6] of the user and of the model in the order of `CELLS`.

    The format is {"DQ_DA": {"user": 1.0, "LLM": 2.0}, ...} as JSON or as a Python literal, in which curly quotes count
    as straight ones; None if the text is anything else, or a number is not finite.
    """
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
    """Parses JSON, or else a Python literal; None for neither."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(text.strip().translate(STRAIGHT))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def distinct(found: Tensor, gap: float = 0.1) -> float:
    """Returns how distinct the parties' payoffs [2, N] are, in [0, 1].

    Half the fraction of the N choices with different payoffs, plus half the fraction in which they differ by more than
    `gap` of the larger one.
    """
    apart = (found[0] - found[1]).abs()
    size = found.abs().amax(0)
    return float(((apart > 0).double() + (apart > gap * size).double()).mean() / 2)


class DistinctPayoffs(TextReward):
    """The reward `distinct` of the payoffs in the answer's block `block`; 0 where they cannot be parsed.

    The reward measures difference, not truth: any table of unequal payoffs gets all of it. Source: GTAlign,
    arXiv:2510.08872.
    """

    block: str = "payoff"
    gap: float = 0.1

    def read(self, text: str, row: int, experience: Experience) -> float:
        found = payoffs(block(text, self.block) or "")
        return 0.0 if found is None else distinct(found, self.gap)


class LegiblePayoffs(TextReward):
    """Reward 1 where the payoffs in the answer's block `block` can be parsed, else 0."""

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
