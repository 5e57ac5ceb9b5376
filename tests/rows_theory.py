"""Rows of the battery: rewards that keep a policy steady, and near a reference."""

from __future__ import annotations

import dataclasses

import torch
from batches import SampleBatch, poisoned, random_batch
from battery import PartRow

from polopt.methods.barfi import AlignedReward, LearnedDiscount
from polopt.methods.chi2_occupancy import AnswerRatio, Departure
from polopt.methods.cot2 import DrawMeanRatio, SoftTargets
from polopt.methods.policy_cliff import SurprisalPenalty
from polopt.objectives import AuxiliaryLoss, Surrogate
from polopt.rewards import Discriminator, OutcomeReward, SumOfRewards


def beside_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch whose decisions have features, with rollouts of a reference beside each row. What the battery
    hides off the mask it hides in those too, so they are no longer than the row."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(300 + seed)
    B, T = batch.mask.shape
    features, base = (torch.randn(B, T, 3, generator=g, dtype=torch.float64) for _ in range(2))
    known = batch.mask & (torch.rand(B, T, generator=g) < 0.7)
    if not clean:
        features, base = poisoned(features, batch.mask), poisoned(base, known)
    extras = {"features": features, "base_features": base, "base_mask": known}
    return dataclasses.replace(batch, experience=batch.experience.replace(extras=extras))


JUDGE = Discriminator(features=3, hidden=4, steps=3)

REWARDS = {
    "surprise": PartRow(SurprisalPenalty()),
    "outcome and surprise": PartRow(SumOfRewards(terms=[OutcomeReward(), SurprisalPenalty(coefficient=0.5)])),
    "departure": PartRow(Departure()),
    "departure by kl": PartRow(Departure(divergence="kl", log_ratio=AnswerRatio(), limit=0.5)),
    "departure by chi2": PartRow(Departure(divergence="chi2")),
    "departure by tv": PartRow(Departure(divergence="tv")),
    "departure of occupancies": PartRow(Departure(log_ratio=JUDGE, trim=0.1), batch=beside_batch),
    "departure of occupancies by chi2": PartRow(
        Departure(divergence="chi2", log_ratio=JUDGE.but(hidden=0)), batch=beside_batch
    ),
}


def mixture_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch of decisions of several draws each, with laws as targets."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(400 + seed)
    B, T = batch.mask.shape
    law = torch.randn(*batch.leaves["logits"].shape, generator=g, dtype=torch.float64).softmax(-1)
    extras = {"drawn": torch.randint(1, 4, (B, T), generator=g)}
    extras["targets"] = law if clean else poisoned(law, batch.mask)
    return dataclasses.replace(batch, experience=batch.experience.replace(extras=extras))


OBJECTIVES = {
    "per draw": PartRow(Surrogate(ratio=DrawMeanRatio()), batch=mixture_batch),
    "product of draws": PartRow(Surrogate(ratio=DrawMeanRatio(root=False)), batch=mixture_batch),
    "soft targets": PartRow(AuxiliaryLoss(regularise=[SoftTargets()]), batch=mixture_batch),
}


def hinted_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch with a designer's hint and features of each decision."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(500 + seed)
    B, T = batch.mask.shape
    aux, features = torch.randn(B, T, generator=g).double(), torch.randn(B, T, 2, generator=g).double()
    extras = {"aux": aux, "features": features}
    if not clean:
        extras = {name: poisoned(value, batch.mask) for name, value in extras.items()}
    return dataclasses.replace(batch, experience=batch.experience.replace(extras=extras))


REWARDS["aligned"] = PartRow(AlignedReward(features=2), batch=hinted_batch)
CREDITS = {"learned discount": PartRow(LearnedDiscount(start=0.8))}
