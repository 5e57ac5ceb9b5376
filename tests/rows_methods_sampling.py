"""Rows of the battery: parts of the methods whose room is sampling."""

from __future__ import annotations

import dataclasses
import functools

import torch
from batches import SampleBatch, poisoned, random_batch
from battery import PartRow
from row_batches import demonstration_batch, group_and_outcome

from polopt.credit import GAE, GroupMean, RelativeAdvantage
from polopt.experience import Experience
from polopt.features import IsCorrect
from polopt.methods.d3s import HighestVariance, TopDecisions
from polopt.methods.econprover import ShortestCorrect
from polopt.methods.mpo_easyhard import EasyPairs
from polopt.methods.pf_ppo import RankedRows
from polopt.methods.refuel import RestartedTurn
from polopt.methods.remix import CentredClip
from polopt.methods.rex_rag import MixtureRatio
from polopt.methods.rorecomp import SelectByField
from polopt.methods.rso import RejectionSampled
from polopt.methods.t_ppo import DecoupledTargets
from polopt.methods.tempsamp_r1 import (
    AnchoredDemonstrations,
    BentReward,
    DiscountedDemonstrations,
    IncludeDemonstrations,
    RatioExceptDemonstrations,
)
from polopt.methods.unified_hpt import ReplacedBySolutions
from polopt.methods.uniworld_v2 import UnsettledGroups
from polopt.objectives import Clip, ReferenceKL, SequenceMean, SequenceRatio, Surrogate, TokenRatio, Unclipped
from polopt.ops import NOTHING
from polopt.rewards import OutcomeReward
from polopt.schedules import Schedule


def probe_batch(seed: int = 0, B: int = 9, T: int = 8, clean: bool = False) -> SampleBatch:
    """A random batch of which a third of the rows had its first two decisions replaced by a probe."""
    batch, g = random_batch(seed, B, T, clean), torch.Generator().manual_seed(100 + seed)
    probe = torch.arange(B) % 3 == 0
    policy = -0.1 - 2 * torch.randn(B, T, generator=g, dtype=torch.float64).abs()
    replaced = batch.mask & (batch.mask.cumsum(1) <= 2)
    logp = torch.where(probe[:, None], torch.where(replaced, -0.7, policy), NOTHING)
    extras = {"policy_logp": policy, "probe_logp": logp}
    if not clean:
        extras = {name: poisoned(value, batch.mask) for name, value in extras.items()}
    return batch.replace(extras={"probe": probe, **extras})


def chosen_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch of which some rows are chosen."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(seed)
    chosen = torch.rand(len(batch.mask), generator=g) < 0.6
    return dataclasses.replace(batch, experience=batch.experience.replace(extras={"chosen": chosen}))


def group_and_length(e: Experience) -> list[tuple[int, int]]:
    """Returns the rows' groups and lengths: which of equally short rows is kept depends on their order."""
    return sorted(zip(e.group.tolist(), e.lengths.tolist(), strict=True))


def restarted_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch of which some decisions belong to a restarted turn."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(seed)
    restarted = torch.rand(batch.mask.shape, generator=g) < 0.5
    return dataclasses.replace(batch, experience=batch.experience.replace(extras={"restarted": restarted}))


probe_row = functools.partial(PartRow, batch=probe_batch)
demonstration_row = functools.partial(PartRow, batch=demonstration_batch)

OBJECTIVES = {
    "centred clip": PartRow(Surrogate(trust=CentredClip())),
    "centred clip of sequences": PartRow(
        Surrogate(ratio=SequenceRatio(), trust=CentredClip(low=0.01, high=0.02, centre=SequenceRatio()))
    ),
    "two anchors": PartRow(
        Surrogate(
            trust=CentredClip(),
            regularise=[
                ReferenceKL(coefficient=Schedule(knots=[(0, 0.5), (2, 0.1)]), gradient="k2", value="k2"),
                ReferenceKL(anchor="previous"),
            ],
        )
    ),
    "mixture": probe_row(Surrogate(ratio=MixtureRatio(), trust=Unclipped())),
    "mixture of rows": probe_row(Surrogate(ratio=MixtureRatio(unit="row"), trust=Clip(), aggregate=SequenceMean())),
    "mixture, share given": probe_row(Surrogate(ratio=MixtureRatio(share=0.2), trust=Clip())),
    "unsampled": demonstration_row(
        Surrogate(ratio=RatioExceptDemonstrations(ratio=TokenRatio()), trust=Unclipped()), honest=None
    ),
    "unsampled, clipped": demonstration_row(Surrogate(ratio=RatioExceptDemonstrations(), trust=Clip()), honest=None),
}

CREDITS = {
    "two lambdas": PartRow(DecoupledTargets(credit=GAE(gamma=0.9, lam=0.8), target=GAE(gamma=0.9, lam=1.0))),
    "together": demonstration_row(IncludeDemonstrations(credit=RelativeAdvantage()), relative=True),
    "anchored": demonstration_row(AnchoredDemonstrations(), relative=True),
    "anchored, centred": demonstration_row(
        AnchoredDemonstrations(credit=RelativeAdvantage(baseline=GroupMean(), scale=None), factor=0.5), relative=True
    ),
}

REWARDS = {
    "shaped": PartRow(BentReward()),
    "shaped, of another": PartRow(BentReward(reward=OutcomeReward(scale=0.5), knee=0.3, above=0.1, below=2.0)),
    "discounted": demonstration_row(DiscountedDemonstrations(factor=0.5)),
}

SELECTS = {
    "unsettled groups": PartRow(UnsettledGroups(least_std=0.05, highest_mean=0.8), keeps="groups"),
    "most varied": PartRow(HighestVariance(share=0.5), keeps="share"),
    "most varied of each group": PartRow(HighestVariance(share=0.6, within="group"), keeps="share"),
    "most varied, more and more": PartRow(HighestVariance(share=Schedule(knots=[(0, 0.3), (4, 1.0)])), keeps="share"),
    "top decisions": PartRow(TopDecisions(share=0.3), keeps="decisions"),
    "top decisions of each row": PartRow(TopDecisions(share=0.3, within="row"), keeps="decisions"),
    "top decisions, more and more": PartRow(
        TopDecisions(share=Schedule(knots=[(0, 0.3), (4, 1.0)])), keeps="decisions"
    ),
    "cheapest": PartRow(ShortestCorrect(right=IsCorrect(threshold=0.0)), key=group_and_length),
    "two cheapest": PartRow(ShortestCorrect(count=2, right=IsCorrect(threshold=-1.0)), key=group_and_length),
    "best and worst": PartRow(RankedRows(best=1, worst=1), key=group_and_outcome),
    "best and another": PartRow(RankedRows(best=1, others=1), key=group_and_outcome),
    "two by chance": PartRow(RankedRows(best=0, others=2, seed=7), key=group_and_outcome),
    "accepted": PartRow(RejectionSampled(count=2)),
    "accepted, of the sampler": PartRow(RejectionSampled(count=1, beta=0.3, law="sampler", seed=2)),
    "easy pairs": PartRow(EasyPairs(reward=OutcomeReward(), gamma=0.5), key=group_and_outcome),
    "easy pairs, signed": PartRow(EasyPairs(reward=OutcomeReward(), gamma=0.1, gap="signed"), key=group_and_outcome),
    "marked": PartRow(SelectByField(), batch=chosen_batch),
    "restarted turn": PartRow(RestartedTurn(), batch=restarted_batch, keeps="decisions"),
    "replaced": PartRow(ReplacedBySolutions(), batch=demonstration_batch),
}
