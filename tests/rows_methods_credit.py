"""Rows of the battery: parts of the methods whose room is credit."""

from __future__ import annotations

import dataclasses

import torch
from batches import SampleBatch, outcome_batch, poisoned, random_batch
from battery import PartRow
from row_batches import answer_reward_batch, few_tokens_batch, section_batch, signal_batch
from rows_credit import AGREEMENT

from polopt.credit import GAE, GroupMean, GroupStd, ModulatedAdvantage, RelativeAdvantage, WeightedAdvantage
from polopt.features.groupings import SameKind, SamePrompt
from polopt.features.masks import IsCorrect
from polopt.features.rows import DecisionCount, MeanEntropy, RowField, SuccessRate
from polopt.methods.aspo_tir import EarlyCall
from polopt.methods.bnpo import BetaScale
from polopt.methods.canon import HalfGroupAdvantage
from polopt.methods.copo import AcrossGroups, MultiAdvantage, PerAdvantageSurrogate
from polopt.methods.empg import CentredAdvantage, TurnCertainty
from polopt.methods.epo import EntropyHistory
from polopt.methods.g2rpo import EntropyBand, NormalScores
from polopt.methods.hiper import HierarchicalAdvantage, SectionValueLoss, SubgoalPenalty
from polopt.methods.infocons import ParaphraseConsistency, ReturnsPlusMeasures, TermEntropy
from polopt.methods.meds3 import StepValueLoss
from polopt.methods.progrpo import RelativeSurprisal
from polopt.methods.score import TurnAdvantage, TurnRewards
from polopt.methods.seed_grpo import SemanticEntropy, UncertaintyDecay
from polopt.methods.spo import SegmentAdvantage
from polopt.methods.v0_5 import ShrunkMean
from polopt.objectives import Clip, SequenceMean, Surrogate
from polopt.schedules import Schedule


def cut_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch with segment boundaries, some of them off the mask."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(seed)
    cut, value = torch.rand(batch.mask.shape, generator=g) < 0.4, torch.randn(batch.mask.shape, generator=g).double()
    extras = {"cut": cut, "cut_value": value if clean else poisoned(value, batch.mask)}
    return dataclasses.replace(batch, experience=batch.experience.replace(extras=extras))


def predicted_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch with a success rate that was predicted of each row's group."""
    batch = random_batch(seed, clean=clean)
    rates = torch.rand(1000, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return batch.replace(extras={"predicted": rates[batch.experience.group]})


PRIOR = RowField(name="predicted")

CENTRED = RelativeAdvantage(scale=None)

OBJECTIVES = {
    "each voice": PartRow(
        Surrogate(trust=PerAdvantageSurrogate(trust=Clip(low=0.1, high=0.2, dual=1.5)), aggregate=SequenceMean())
    ),
    "entropy band": PartRow(Surrogate(regularise=[EntropyBand(of="exact", low=0.7, high=0.8, coefficient=2.0)])),
    "values of sections": PartRow(Surrogate(regularise=[SectionValueLoss()]), batch=section_batch),
    "values of steps": PartRow(Surrogate(regularise=[StepValueLoss(coefficient=2.0)]), batch=section_batch),
    "sampled entropy band": PartRow(
        Surrogate(regularise=[EntropyBand(low=1.6, high=1.7, coefficient=2.0, kinds=("a",))])
    ),
}

CREDITS = {
    "subgoals": PartRow(HierarchicalAdvantage(normalise=False, gamma=0.9), batch=section_batch),
    "subgoals, normalised": PartRow(HierarchicalAdvantage(lam=0.8, cut="bootstrap"), batch=section_batch),
    "entropy history": PartRow(EntropyHistory(credit=RelativeAdvantage()), relative=True),
    "beta": PartRow(RelativeAdvantage(scale=BetaScale(low=-20.0, high=1010.0)), relative=True),
    "beta of outcomes": PartRow(
        RelativeAdvantage(scale=BetaScale(low=-20.0, high=1010.0, shape=(1.5, 3.0))), relative=True
    ),
    "halves by length": PartRow(
        HalfGroupAdvantage(by=DecisionCount(), mu=Schedule(knots=[(0, 1.0), (2, 0.0)])), relative=True
    ),
    "halves by entropy": PartRow(
        HalfGroupAdvantage(by=MeanEntropy(), mu=SuccessRate(invert=True), upper=1.0, lower=0.8)
    ),
    "across prompts": PartRow(AcrossGroups(), relative=True),
    "advantages": PartRow(
        MultiAdvantage(
            shares=[
                WeightedAdvantage(credit=RelativeAdvantage(), weight=AGREEMENT),
                WeightedAdvantage(credit=AcrossGroups(), weight=0.5),
            ]
        ),
        relative=True,
    ),
    "clear turns": PartRow(ModulatedAdvantage(credit=RelativeAdvantage(), times=TurnCertainty()), relative=True),
    "clear turns ahead": PartRow(
        CentredAdvantage(
            credit=ModulatedAdvantage(
                credit=RelativeAdvantage(), times=TurnCertainty(), plus=TurnCertainty(turn="next", weight=0.1)
            ),
            unit="turn",
        )
    ),
    "centred": PartRow(CentredAdvantage(credit=GAE())),
    "ranks": PartRow(NormalScores(), relative=True),
    "ranks of ranks": PartRow(NormalScores(within=[SamePrompt(), SameKind()]), relative=True),
    "plus measures": PartRow(ReturnsPlusMeasures(measures=[DecisionCount(), MeanEntropy()], weights=[0.1, -0.5])),
    "informative": PartRow(
        ReturnsPlusMeasures(measures=[TermEntropy()], weights=[1.0], own=0.0), batch=few_tokens_batch
    ),
    "steady in entropy": PartRow(
        ReturnsPlusMeasures(measures=[ParaphraseConsistency()], weights=[1.0]), batch=few_tokens_batch
    ),
    "steady in content": PartRow(
        ReturnsPlusMeasures(
            measures=[ParaphraseConsistency(by="content", within=SameKind())],
            weights=[1.0],
            credit=RelativeAdvantage(scale=None),
        ),
        batch=few_tokens_batch,
    ),
    "early calls": PartRow(
        ModulatedAdvantage(credit=RelativeAdvantage(), plus=EarlyCall(eligible=IsCorrect(threshold=0.5)), limit=0.7),
        batch=signal_batch,
    ),
    "surprise": PartRow(ModulatedAdvantage(credit=RelativeAdvantage(), plus=RelativeSurprisal())),
    "surprise within the group": PartRow(
        ModulatedAdvantage(credit=RelativeAdvantage(), plus=RelativeSurprisal(than="group"), limit=1.0)
    ),
    "by turn": PartRow(TurnAdvantage(bonus=10.0), batch=answer_reward_batch),
    "by turn, in units": PartRow(
        TurnAdvantage(baseline=GroupMean(), scale=GroupStd(eps=0.1)), batch=answer_reward_batch
    ),
    "by turn, plain": PartRow(TurnAdvantage(baseline=None, bonus=1.0), batch=answer_reward_batch),
    "semantic entropy": PartRow(
        ModulatedAdvantage(credit=CENTRED, times=UncertaintyDecay(by=SemanticEntropy(), strength=0.3)), relative=True
    ),
    "semantic entropy, exponential": PartRow(
        ModulatedAdvantage(
            credit=CENTRED, times=UncertaintyDecay(by=SemanticEntropy(weigh="count"), shape="exponential")
        ),
        relative=True,
    ),
    "semantic entropy, focal": PartRow(
        ModulatedAdvantage(
            credit=CENTRED, times=UncertaintyDecay(by=SemanticEntropy(weigh="sequence"), strength=0.1, shape="focal")
        ),
        relative=True,
    ),
    "faded by token entropy": PartRow(
        ModulatedAdvantage(credit=GAE(), times=UncertaintyDecay(by=MeanEntropy(), strength=0.2))
    ),
    "between cuts": PartRow(SegmentAdvantage(), batch=cut_batch),
    "shrunk": PartRow(
        RelativeAdvantage(baseline=ShrunkMean(prior=PRIOR, low=-20.0, high=1010.0), scale=None), batch=predicted_batch
    ),
    "shrunk, others": PartRow(
        RelativeAdvantage(baseline=ShrunkMean(prior=PRIOR, low=-20.0, high=1010.0, others=True), scale=None),
        batch=predicted_batch,
    ),
    "half of each": PartRow(
        RelativeAdvantage(baseline=ShrunkMean(prior=PRIOR, low=-20.0, high=1010.0, weight=0.5), scale=None),
        batch=predicted_batch,
    ),
}

REWARDS = {
    "subgoals that are kept": PartRow(SubgoalPenalty(keep=0.3, rewritten=0.2), batch=section_batch),
    "paid by turn": PartRow(TurnRewards(weights=(0.0, 2.0)), batch=answer_reward_batch),
    "answer_reward": PartRow(TurnRewards(), batch=answer_reward_batch),
}

BATCHES = {"bnpo": outcome_batch}
