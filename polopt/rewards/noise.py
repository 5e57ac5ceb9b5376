"""Corrections of an erroneous verifier's rewards by its error rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Experience
from polopt.features.base import RowMask
from polopt.features.masks import IsCorrect
from polopt.part import Part
from polopt.rewards.parts import Reward


class Rates(Part):
    """Error rates of the verifier: `rates(experience) -> (rho0 [B], rho1 [B])`, of false positives and of false
    negatives."""

    def forward(self, experience: Experience) -> tuple[Tensor, Tensor]:
        raise NotImplementedError


class FixedRates(Rates):
    """Known error rates.

    kinds: (kind, rho0, rho1) for tasks whose `extras["kind"]` has its own rates.
    """

    false_positive: float = 0.1
    false_negative: float = 0.2
    kinds: Sequence[tuple[str, float, float]] = ()

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"outcome"} | ({"extras.kind"} if self.kinds else set()))

    def setup(self) -> None:
        for rho in ((self.false_positive, self.false_negative), *(own[1:] for own in self.kinds)):
            if min(rho) < 0 or sum(rho) >= 1:
                raise ValueError(f"rewards.FixedRates: need rates >= 0 that add up to less than 1, found {list(rho)}")

    def forward(self, experience: Experience) -> tuple[Tensor, Tensor]:
        plain = (self.false_positive, self.false_negative)
        like: dict[str, Any] = {"dtype": experience.outcome.dtype, "device": experience.device}
        if not self.kinds:
            both = torch.tensor(plain, **like).expand(len(experience), 2)
        else:
            own = {kind: (rho0, rho1) for kind, rho0, rho1 in self.kinds}
            table = [own.get(kind, plain) for kind in experience.extras["kind"]]
            both = torch.tensor(table, **like).reshape(-1, 2)
        return both[:, 0], both[:, 1]


class NotedRates(Rates):
    """Error rates that the world records of each row: `extras[false_positive]` and `extras[false_negative]`, [B]."""

    false_positive: str = "signal_false_positive"
    false_negative: str = "signal_false_negative"

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({f"extras.{self.false_positive}", f"extras.{self.false_negative}"})

    def forward(self, experience: Experience) -> tuple[Tensor, Tensor]:
        return experience.extras[self.false_positive], experience.extras[self.false_negative]


class RejudgedRates(Rates):
    """Error rates estimated online, by re-scoring a random sample of the verifier's verdicts with a second judge.

    Sampled are a fraction `negatives` of the rows that the verifier rejected, N in number, and a fraction `positives`
    of the P rows that `verdict` marks:
        O = N overturned / re-scored, F likewise of the positives;   rho1 = O / (O + P - F), rho0 = F / (F + N - O),
    all counts smoothed over batches with `decay`, rates at most `most`. A batch is counted after it was corrected, in
    training mode only. The sampling, by `seed`, draws how many of the rows with identical properties are re-scored, so
    that the order of the rows does not matter.

    judge: the extra [B] with the second judge's verdict, 1 or 0, or NaN where it has none.
    false_positive, false_negative: rho0, with F = 0, and rho1 until some rows were re-scored.
    kinds: kinds of task that have estimates of their own.

    Source: the appeals of arXiv:2510.00915, whose estimate is rho1 at F = 0.
    """

    judge: str = "signal_true"
    verdict: RowMask = IsCorrect()
    negatives: float = 0.1
    positives: float = 0.0
    decay: float = 0.9
    most: float = 0.45
    false_positive: float = 0.0
    false_negative: float = 0.0
    kinds: Sequence[str] = ()
    seed: int = 0

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"outcome", f"extras.{self.judge}"} | ({"extras.kind"} if self.kinds else set()))

    def setup(self) -> None:
        for name in ("negatives", "positives", "decay", "false_positive", "false_negative"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"rewards.RejudgedRates: {name} must be in [0, 1], found {getattr(self, name)}")
        if not 0 < self.most < 1:
            raise ValueError(f"rewards.RejudgedRates: most must be in (0, 1), found {self.most}")
        # By kind (all others last) and verdict, 0 and 1: rows, rows re-scored, verdicts overturned.
        self.register_buffer("counts", torch.zeros(len(self.kinds) + 1, 2, 3, dtype=torch.float64))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def forward(self, experience: Experience) -> tuple[Tensor, Tensor]:
        kind = self._kind(experience)
        rho0, rho1 = (rate[kind].to(experience.outcome) for rate in self.estimates())
        if self.training and len(experience):
            self._count(experience, kind)
        return rho0, rho1

    def estimates(self) -> tuple[Tensor, Tensor]:
        """Returns the current estimates of rho0 and rho1, [kinds + 1] each; the last are those of all other kinds."""
        rows, judged, overturned = self.get_buffer("counts").unbind(-1)
        share = torch.where(judged > 0, overturned / judged.clamp(min=1e-300), 0)
        missed, passed = (rows * share).unbind(1)
        wrong, right = passed + rows[:, 0] - missed, missed + rows[:, 1] - passed
        rho0 = torch.where((judged[:, 1] > 0) & (wrong > 0), passed / wrong.clamp(min=1e-300), self.false_positive)
        rho1 = torch.where((judged[:, 0] > 0) & (right > 0), missed / right.clamp(min=1e-300), self.false_negative)
        return rho0.clamp(max=self.most), rho1.clamp(max=self.most)

    def _kind(self, experience: Experience) -> Tensor:
        if not self.kinds:
            return torch.zeros(len(experience), dtype=torch.long, device=experience.device)
        known = {kind: i for i, kind in enumerate(self.kinds)}
        found = [known.get(kind, len(known)) for kind in experience.extras["kind"]]
        return torch.tensor(found, dtype=torch.long, device=experience.device)

    def _count(self, experience: Experience, kind: Tensor) -> None:
        counts, batches = self.get_buffer("counts"), self.get_buffer("batches")
        paid, second = self.verdict(experience), experience.extras[self.judge]
        answered, other = second.isfinite(), (second >= 0.5) != paid
        # Rows with identical properties are sorted together; random numbers are assigned in that order.
        cell = ((kind * 2 + paid) * 2 + answered) * 2 + (answered & other)
        order = cell.argsort(stable=True)
        key = ops.scrambled(torch.stack([batches, torch.full_like(batches, self.seed)])).sum()
        draw = ops.uniform(key + torch.arange(len(cell), device=cell.device))
        drawn = torch.empty_like(draw).scatter(0, order, draw) < torch.where(paid, self.positives, self.negatives)
        judged = drawn & answered
        seen = torch.stack([torch.ones_like(draw), judged.double(), (judged & other).double()], 1)
        counts.mul_(self.decay).view(-1, 3).index_add_(0, kind * 2 + paid, seen.to(counts))
        batches.add_(1)


class BackwardCorrected(Reward):
    """Unbiased reward (r - rho0) / (1 - rho0 - rho1), with expectation 1 for right answers and 0 for wrong ones.

    The variance is that of r over (1 - rho0 - rho1)^2. With one pair of rates for a whole group the correction is an
    affine map, which a z-score undoes. Source: arXiv:2510.00915.

    verdict: the rows that the verifier accepts, r = 1; r = 0 for all others.
    least: lower bound of the denominator.
    """

    rates: Rates = FixedRates()
    verdict: RowMask = IsCorrect()
    least: float = 0.1

    def setup(self) -> None:
        if self.least <= 0:
            raise ValueError(f"rewards.BackwardCorrected: least must be > 0, found {self.least}")

    def forward(self, experience: Experience) -> Tensor:
        rho0, rho1 = self.rates(experience)
        return (self.verdict(experience).to(rho0) - rho0) / (1 - rho0 - rho1).clamp(min=self.least)


class ForwardCorrected(Reward):
    """Reward rho1 where r = 1 and rho1 - 1 where r = 0, with expectation 0 for right answers and -(1 - rho0 - rho1) for
    wrong ones.

    As a weight of the score function it gives (1 - rho0 - rho1) times the noise-free gradient, and rho0 need not be
    known. It is a weight, not a reward to be compared: subtracting a group mean undoes the correction, so its credit is
    `RelativeAdvantage(baseline=None, scale=None)`. Source: arXiv:2510.00915.

    verdict: as for `BackwardCorrected`.
    """

    rates: Rates = FixedRates()
    verdict: RowMask = IsCorrect()

    def forward(self, experience: Experience) -> Tensor:
        _, rho1 = self.rates(experience)
        return self.verdict(experience).to(rho1) - 1 + rho1
