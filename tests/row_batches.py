"""Batches, and other helpers, of battery rows in several files."""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import Any

import torch
from batches import SampleBatch, poisoned, random_batch, taught_batch
from battery import PartRow

import polopt as po
from polopt.methods.gtalign import CELLS
from polopt.worlds import Task

TABLE = json.dumps({cell: {"user": float(i), "LLM": 2.0} for i, cell in enumerate(CELLS)})
TEXTS = (
    f"<thinking>a b c</thinking><payoff>{TABLE}</payoff>",
    "<thinking>a</thinking><payoff>{}</payoff>",
    "<payoff>1</payoff><thinking></thinking>",
    "plain words",
    "",
    r"<answer>\boxed{3 or 4}</answer> or so",
    r"Re-evaluate Knowledge Network: it was 3, outdated. <answer>\boxed{4}</answer>",
    "def test_f_x():\n    assert f(1) == 2",
    "print(f(1))",
    "def f(",
)


def demonstration_batch(seed: int = 0, B: int = 9, T: int = 8, clean: bool = False) -> SampleBatch:
    """A random batch of which every third row is a demonstration."""
    batch = random_batch(seed, B, T, clean)
    mark = {"is_demonstration": torch.arange(B) % 3 == 1}
    return SampleBatch(batch.experience.replace(extras=mark), batch.leaves)


def opponent_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch of which every third row is an opponent's."""
    batch = random_batch(seed, clean=clean)
    return batch.replace(extras={"is_opponent": torch.arange(len(batch.mask)) % 3 == 1})


def state_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch whose turns are in few states, and whose decisions are few tokens."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(300 + seed)
    mask, turn = batch.mask, batch.experience.turn
    by_turn = torch.randint(0, 2, (len(mask), int(turn.max()) + 1), generator=g)
    state, tokens = by_turn.gather(1, turn), torch.randint(0, 2, mask.shape, generator=g)
    if not clean:
        state, tokens = torch.where(mask, state, 99), torch.where(mask, tokens, -1)
    return batch.replace(extras={"turn_state": state, "tokens": tokens})


def section_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch whose answers have sections, in few tokens, and labels of some of their decisions."""
    batch, g = state_batch(seed, clean=clean), torch.Generator().manual_seed(500 + seed)
    mask = batch.mask
    section, label = torch.randint(0, 4, mask.shape, generator=g), torch.rand(mask.shape, generator=g).double()
    there = (torch.rand(mask.shape, generator=g) < 0.5) & mask
    if not clean:
        section = torch.where(mask, section, 99)
    labels = {"valued": there, "step_labelled": there, "step_label": torch.where(there, label, torch.nan)}
    return batch.replace(extras={"section": section, **labels})


def history_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch after others with a mean entropy of 1.6."""
    batch = random_batch(seed, clean=clean)
    return batch.replace(extras={"entropy_history": torch.full((len(batch.mask),), 1.6, dtype=torch.float64)})


def signal_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch with a world's signals of each row: numbers from 0 to 1, and NaN from a judge that failed."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(200 + seed)
    names = ("flawed", "true", "false_positive", "false_negative")
    extras = {f"signal_{name}": torch.rand(len(batch.mask), generator=g).double() for name in names}
    extras["signal_true"] = extras["signal_true"].round()
    extras["signal_calls"] = torch.randint(0, 5, (len(batch.mask),), generator=g).double()
    extras["signal_first_call"] = torch.randint(-1, 3, (len(batch.mask),), generator=g).double()
    extras["signal_flawed"][3] = torch.nan
    return batch.replace(extras=extras)


def text_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch whose answers are texts with and without blocks."""
    batch = random_batch(seed, clean=clean)
    chosen = torch.randint(len(TEXTS), (len(batch.mask),), generator=torch.Generator().manual_seed(seed)).tolist()
    fixed = {"old": "it was 3", "focal": "f"}
    tasks = [Task("sum", "sum", "2 + 2", "4", {**fixed, **({"meaning": i} if i < 5 else {})}) for i in chosen]
    extras = {"answer": [TEXTS[i] for i in chosen], "task": tasks, "index": torch.arange(len(chosen)) // 2}
    return dataclasses.replace(batch, experience=batch.experience.replace(extras=extras))


def few_tokens_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch over a vocabulary of four tokens, with invalid ids off the mask."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(seed)
    tokens = torch.randint(4, batch.mask.shape, generator=g)
    extras = {"tokens": tokens if clean else torch.where(batch.mask, tokens, 10**6 + tokens)}
    return dataclasses.replace(batch, experience=batch.experience.replace(extras=extras))


def answer_reward_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch of turns of three decisions, with a reward of each answer."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(seed)
    mask = batch.mask
    reward = torch.rand(mask.shape, generator=g, dtype=torch.float64)
    turn = torch.where(mask, (torch.arange(mask.shape[1]) // 3).expand(mask.shape), -1)
    experience = batch.experience.replace(
        extras={"answer_reward": reward if clean else poisoned(reward, mask)}, turn=turn
    )
    return dataclasses.replace(batch, experience=experience)


def task_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch whose rows have a task with a solution."""
    batch = random_batch(seed, clean=clean)
    groups = batch.experience.group.tolist()
    tasks = [Task(f"task/{g}", "number", f"number {g}", str(g % 10), {}) for g in groups]
    return dataclasses.replace(batch, experience=batch.experience.replace(extras={"task": tasks}))


def group_and_outcome(experience: po.Experience) -> list[Any]:
    """Returns the rows' groups and outcomes: rows that agree in both stand for each other."""
    return list(zip(experience.group.tolist(), experience.outcome.tolist(), strict=True))


taught_row = functools.partial(PartRow, batch=taught_batch)


def mismatched_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch of which every other row holds an answer to another prompt."""
    batch = random_batch(seed, clean=clean)
    return batch.replace(extras={"mismatched": torch.arange(len(batch.mask)) % 2 == 0})
