"""Rows of the battery: rewards of several parties, texts and sets, and what several stages are made of."""

from __future__ import annotations

import dataclasses
import json

import torch
from batches import SampleBatch, poisoned, random_batch
from battery import PartRow

from polopt.credit import GAE, GroupMean, GroupStd, RelativeAdvantage, WhitenedAdvantage
from polopt.features.groupings import SameKind, SameMeaning, SamePrompt, WholeBatch
from polopt.features.rows import DecisionCount, MeanEntropy
from polopt.methods.etcon import EtConCleanness, EtConConsistency, EtConCorrectness, EtConForm
from polopt.methods.gtalign import CELLS, DistinctPayoffs, LegiblePayoffs, StandardisedReturns
from polopt.methods.infocons import ParaphraseConsistency, ReturnsPlusMeasures, TermEntropy
from polopt.methods.rlsqm import LinearTokenReward, UnitTest
from polopt.methods.score import TurnAdvantage, TurnRewards
from polopt.rewards import (
    Blocks,
    Brevity,
    ConditionalReward,
    GeometricMean,
    HasBlock,
    KLPenalty,
    LeadingBlocks,
    LengthWindow,
    MinimumReward,
    OutcomeReward,
    OverlongPenalty,
    PositiveReward,
)
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


def text_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch whose answers are texts with and without blocks."""
    batch = random_batch(seed, clean=clean)
    chosen = torch.randint(len(TEXTS), (len(batch.mask),), generator=torch.Generator().manual_seed(seed)).tolist()
    fixed = {"old": "it was 3", "focal": "f"}
    tasks = [Task("sum", "sum", "2 + 2", "4", {**fixed, **({"meaning": i} if i < 5 else {})}) for i in chosen]
    extras = {"answer": [TEXTS[i] for i in chosen], "task": tasks, "index": torch.arange(len(chosen)) // 2}
    return dataclasses.replace(batch, experience=batch.experience.replace(extras=extras))


def worded_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch whose decisions are tokens of four, of anything off the mask."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(seed)
    tokens = torch.randint(4, batch.mask.shape, generator=g)
    extras = {"tokens": tokens if clean else torch.where(batch.mask, tokens, 10**6 + tokens)}
    return dataclasses.replace(batch, experience=batch.experience.replace(extras=extras))


def paid_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch of three turns, whose answers were paid one by one, and anything off the mask."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(seed)
    mask = batch.mask
    paid = torch.rand(mask.shape, generator=g, dtype=torch.float64)
    turn = torch.where(mask, (torch.arange(mask.shape[1]) // 3).expand(mask.shape), -1)
    experience = batch.experience.replace(extras={"answer_reward": paid if clean else poisoned(paid, mask)}, turn=turn)
    return dataclasses.replace(batch, experience=experience)


REWARDS = {
    "geometric mean": PartRow(
        GeometricMean(terms=[OutcomeReward(), LengthWindow(low=1, high=4, steepness=1.0)], weights=[1.0, 2.0])
    ),
    "least": PartRow(MinimumReward(terms=[OutcomeReward(), OverlongPenalty(limit=4)])),
    "blocks": PartRow(Blocks(names=NAMES), batch=text_batch),
    "leading blocks": PartRow(LeadingBlocks(names=NAMES), batch=text_batch),
    "has a block": PartRow(HasBlock(name="answer"), batch=text_batch),
    "brevity before a block": PartRow(Brevity(scale=9.0, of="characters", before="answer"), batch=text_batch),
    "legible": PartRow(LegiblePayoffs(), batch=text_batch),
    "payoffs": PartRow(DistinctPayoffs(), batch=text_batch),
    "window of words": PartRow(LengthWindow(low=1, high=4, steepness=1.0, of="words"), batch=text_batch),
    "brevity of a block": PartRow(Brevity(scale=2.0, of="characters", block="thinking"), batch=text_batch),
    "brevity": PartRow(Brevity(scale=2.0)),
    "gated": PartRow(
        ConditionalReward(reward=OutcomeReward(), when=PositiveReward(reward=Blocks(names=NAMES)), otherwise=-1.0),
        batch=text_batch,
    ),
    "in form": PartRow(EtConForm(), batch=text_batch),
    "clean": PartRow(EtConCleanness(), batch=text_batch),
    "correct": PartRow(EtConCorrectness(), batch=text_batch),
    "consistent": PartRow(EtConConsistency(), batch=text_batch),
    "unit test": PartRow(UnitTest(), batch=text_batch),
    "one metric of a unit test": PartRow(UnitTest(metrics=["focal"]), batch=text_batch),
    "modelled": PartRow(LinearTokenReward(reward=OutcomeReward(), features=16), batch=worded_batch),
    "paid by turn": PartRow(TurnRewards(weights=(0.0, 2.0)), batch=paid_batch),
    "answer_reward": PartRow(TurnRewards(), batch=paid_batch),
    "kl of a turn": PartRow(KLPenalty(turn=1), batch=paid_batch),
}

CREDITS = {
    "by turn": PartRow(TurnAdvantage(bonus=10.0), batch=paid_batch),
    "by turn, in units": PartRow(TurnAdvantage(baseline=GroupMean(), scale=GroupStd(eps=0.1)), batch=paid_batch),
    "by turn, plain": PartRow(TurnAdvantage(baseline=None, bonus=1.0), batch=paid_batch),
    "z-score of a kind": PartRow(StandardisedReturns(credit=RelativeAdvantage(baseline=None, scale=None))),
    "minmax of a kind": PartRow(StandardisedReturns(by="minmax")),
    "robust of all": PartRow(
        StandardisedReturns(by="robust", within=WholeBatch(), credit=RelativeAdvantage(baseline=None, scale=None))
    ),
    "cdf of a group": PartRow(StandardisedReturns(by="cdf", within=SamePrompt())),
    "units before a critic": PartRow(StandardisedReturns(credit=WhitenedAdvantage(credit=GAE(cut="zero")))),
    "plus measures": PartRow(ReturnsPlusMeasures(measures=[DecisionCount(), MeanEntropy()], weights=[0.1, -0.5])),
    "of one meaning": PartRow(
        RelativeAdvantage(baseline=GroupMean(within=SameMeaning()), scale=GroupStd(within=SameMeaning())),
        batch=text_batch,
    ),
    "informative": PartRow(ReturnsPlusMeasures(measures=[TermEntropy()], weights=[1.0], own=0.0), batch=worded_batch),
    "steady in entropy": PartRow(
        ReturnsPlusMeasures(measures=[ParaphraseConsistency()], weights=[1.0]), batch=worded_batch
    ),
    "steady in content": PartRow(
        ReturnsPlusMeasures(
            measures=[ParaphraseConsistency(by="content", within=SameKind())],
            weights=[1.0],
            credit=RelativeAdvantage(scale=None),
        ),
        batch=worded_batch,
    ),
}
