"""Rows of the battery: rewards of several parties, texts and sets, and what several stages are made of."""

from __future__ import annotations

import dataclasses
import json

import torch
from batches import Batch, poisoned, random_batch
from battery import Row

from polopt.credit import (
    GAE,
    ByTurn,
    Everyone,
    GroupMean,
    GroupStd,
    Informative,
    Kind,
    Length,
    MeanEntropy,
    Meaning,
    Plus,
    Prompt,
    Relative,
    Standardised,
    Steady,
    Whitened,
)
from polopt.rewards import (
    Blocks,
    Brevity,
    Clean,
    Consistent,
    Correct,
    Gated,
    GeometricMean,
    HasBlock,
    InForm,
    KLPenalty,
    LeadingBlocks,
    Least,
    Legible,
    Modelled,
    Outcome,
    Overlong,
    Paid,
    Paying,
    Payoffs,
    UnitTest,
    Window,
)
from polopt.rewards.payoffs import CELLS
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
)
TEXTS += ("def test_f_x():\n    assert f(1) == 2", "print(f(1))", "def f(")
NAMES = ("thinking", "payoff")


def text_batch(seed: int = 0, clean: bool = False) -> Batch:
    """A random batch whose answers are texts with and without blocks."""
    batch = random_batch(seed, clean=clean)
    chosen = torch.randint(len(TEXTS), (len(batch.mask),), generator=torch.Generator().manual_seed(seed)).tolist()
    fixed = {"old": "it was 3", "focal": "f"}
    tasks = [Task("sum", "sum", "2 + 2", "4", {**fixed, **({"meaning": i} if i < 5 else {})}) for i in chosen]
    extras = {"answer": [TEXTS[i] for i in chosen], "task": tasks, "index": torch.arange(len(chosen)) // 2}
    return dataclasses.replace(batch, experience=batch.experience.replace(extras=extras))


def worded_batch(seed: int = 0, clean: bool = False) -> Batch:
    """A random batch whose decisions are tokens of four, of anything off the mask."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(seed)
    tokens = torch.randint(4, batch.mask.shape, generator=g)
    extras = {"tokens": tokens if clean else torch.where(batch.mask, tokens, 10**6 + tokens)}
    return dataclasses.replace(batch, experience=batch.experience.replace(extras=extras))


def paid_batch(seed: int = 0, clean: bool = False) -> Batch:
    """A random batch of three turns, whose answers were paid one by one, and anything off the mask."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(seed)
    mask = batch.mask
    paid = torch.rand(mask.shape, generator=g, dtype=torch.float64)
    turn = torch.where(mask, (torch.arange(mask.shape[1]) // 3).expand(mask.shape), -1)
    experience = batch.experience.replace(extras={"paid": paid if clean else poisoned(paid, mask)}, turn=turn)
    return dataclasses.replace(batch, experience=experience)


REWARDS = {
    "geometric mean": Row(GeometricMean(terms=[Outcome(), Window(low=1, high=4, steepness=1.0)], weights=[1.0, 2.0])),
    "least": Row(Least(terms=[Outcome(), Overlong(limit=4)])),
    "blocks": Row(Blocks(names=NAMES), batch=text_batch),
    "leading blocks": Row(LeadingBlocks(names=NAMES), batch=text_batch),
    "has a block": Row(HasBlock(name="answer"), batch=text_batch),
    "brevity before a block": Row(Brevity(scale=9.0, unit="characters", before="answer"), batch=text_batch),
    "legible": Row(Legible(), batch=text_batch),
    "payoffs": Row(Payoffs(), batch=text_batch),
    "window of words": Row(Window(low=1, high=4, steepness=1.0, unit="words"), batch=text_batch),
    "brevity of a block": Row(Brevity(scale=2.0, unit="characters", block="thinking"), batch=text_batch),
    "brevity": Row(Brevity(scale=2.0)),
    "gated": Row(Gated(reward=Outcome(), when=Paying(reward=Blocks(names=NAMES)), otherwise=-1.0), batch=text_batch),
    "in form": Row(InForm(), batch=text_batch),
    "clean": Row(Clean(), batch=text_batch),
    "correct": Row(Correct(), batch=text_batch),
    "consistent": Row(Consistent(), batch=text_batch),
    "unit test": Row(UnitTest(), batch=text_batch),
    "one metric of a unit test": Row(UnitTest(metrics=["focal"]), batch=text_batch),
    "modelled": Row(Modelled(reward=Outcome(), features=16), batch=worded_batch),
    "paid by turn": Row(Paid(weights=(0.0, 2.0)), batch=paid_batch),
    "paid": Row(Paid(), batch=paid_batch),
    "kl of a turn": Row(KLPenalty(turn=1), batch=paid_batch),
}

CREDITS = {
    "by turn": Row(ByTurn(bonus=10.0), batch=paid_batch),
    "by turn, in units": Row(ByTurn(baseline=GroupMean(), scale=GroupStd(eps=0.1)), batch=paid_batch),
    "by turn, plain": Row(ByTurn(baseline=None, bonus=1.0), batch=paid_batch),
    "z-score of a kind": Row(Standardised(credit=Relative(baseline=None, scale=None))),
    "minmax of a kind": Row(Standardised(by="minmax")),
    "robust of all": Row(Standardised(by="robust", within=Everyone(), credit=Relative(baseline=None, scale=None))),
    "cdf of a group": Row(Standardised(by="cdf", within=Prompt())),
    "units before a critic": Row(Standardised(credit=Whitened(credit=GAE(cut="zero")))),
    "plus measures": Row(Plus(measures=[Length(), MeanEntropy()], weights=[0.1, -0.5])),
    "of one meaning": Row(
        Relative(baseline=GroupMean(within=Meaning()), scale=GroupStd(within=Meaning())), batch=text_batch
    ),
    "informative": Row(Plus(measures=[Informative()], weights=[1.0], own=0.0), batch=worded_batch),
    "steady in entropy": Row(Plus(measures=[Steady()], weights=[1.0]), batch=worded_batch),
    "steady in content": Row(
        Plus(measures=[Steady(by="content", within=Kind())], weights=[1.0], credit=Relative(scale=None)),
        batch=worded_batch,
    ),
}
