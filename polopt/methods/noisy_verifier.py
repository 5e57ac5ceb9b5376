"""Policy gradients under a noisy verifier: PGBC corrects the reward, PGFC the weight of the score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, RelativeAdvantage
from polopt.experience import Experience
from polopt.features.base import RowMask
from polopt.features.masks import IsCorrect
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.part import Part
from polopt.rewards.parts import Reward


@method(
    paper=Paper(
        title="Reinforcement Learning with Verifiable yet Noisy Rewards under Imperfect Verifiers",
        authors="Cai, Xin-Qiang and Wang, Wei and Liu, Feng and Liu, Tongliang and Niu, Gang and Sugiyama, Masashi",
        year=2025,
        arxiv="2510.00915",
    ),
    changes="Verdicts are corrected by how often the verifier errs, without a z-score that would undo it.",
    room="rewards",
    tier="proven",
)
def noisy_verifier(
    *,
    group: int = 8,
    correction: Literal["backward", "forward"] = "backward",
    false_positive: float = 0.1,
    false_negative: float = 0.2,
    kinds: Sequence[tuple[str, float, float]] = (),
    judge: str | None = None,
    share: float = 0.1,
    clip: float = 0.2,
) -> Algorithm:
    """Corrections for a verifier that accepts wrong answers with probability rho0 and rejects right ones with rho1,
    rho0 + rho1 < 1.

        backward:  R = (r - rho0) / (1 - rho0 - rho1),   A = R - mean_g R
        forward:   A = rho1 if r = 1, rho1 - 1 if r = 0

    on GRPO's clipped objective without KL. The expectation of the backward R is the true reward; that of the forward
    gradient is (1 - rho0 - rho1) times the true one, and rho0 is not needed. Its weights have no baseline: a group mean
    would undo them. Nor has the backward one a standard deviation, which would cancel it wherever a group has one pair
    of rates. The denominator is at least 0.1.

    kinds: (kind, rho0, rho1) of kinds of tasks with rates of their own. judge: with the name of an extra, such as
    "signal_true", the rates are estimated during training: a `share` of the rejected answers is verified again,
    rho1 = overturned / (accepted + overturned), smoothed over batches and at most 0.45; `false_positive` and
    `false_negative` are then the initial estimates, and each of `kinds` has its own.

    Both corrections and the appeals are the paper's; where in GRPO they are hooked in, the default rates, smoothing and
    bounds could not be read and are ours. With one pair of rates for all tasks the uncorrected gradient already is
    (1 - rho0 - rho1) times the true one: the correction matters where rates differ, where other rewards are added, and
    for the length of the step. The forward gradient is right on average and far from it in one batch: it mostly lowers
    the probability of wrong answers, without a direction. A small policy with 28 % right answers at first collapsed
    within 30 batches in each of 3 seeds (benchmarks/results/methods-planted.md); start from a policy that is mostly
    right. For that the backward one is the default; the paper reports the forward one ahead under heavy noise.
    """
    rates: Rates = FixedRates(false_positive=false_positive, false_negative=false_negative, kinds=kinds)
    if judge is not None:
        names = [kind for kind, *_ in kinds]
        rates = RejudgedRates(
            judge=judge, negatives=share, false_positive=false_positive, false_negative=false_negative, kinds=names
        )
    plain = grpo(group=group, clip=clip, kl=0.0)
    if correction == "backward":
        return plain.but(
            reward=BackwardCorrected(rates=rates), credit=RelativeAdvantage(baseline=GroupMean(), scale=None)
        )
    return plain.but(reward=ForwardCorrected(rates=rates), credit=RelativeAdvantage(baseline=None, scale=None))


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
                raise ValueError(
                    f"methods.noisy_verifier.FixedRates: need rates >= 0 that add up to less than 1, found {list(rho)}"
                )

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
    """Error rates that the environment records of each row, [B]: `extras[false_positive]`, `extras[false_negative]`."""

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
                raise ValueError(
                    f"methods.noisy_verifier.RejudgedRates: {name} must be in [0, 1], found {getattr(self, name)}"
                )
        if not 0 < self.most < 1:
            raise ValueError(f"methods.noisy_verifier.RejudgedRates: most must be in (0, 1), found {self.most}")
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
        rewarded, second = self.verdict(experience), experience.extras[self.judge]
        answered, other = second.isfinite(), (second >= 0.5) != rewarded
        # Rows with identical properties are sorted together; random numbers are assigned in that order.
        cell = ((kind * 2 + rewarded) * 2 + answered) * 2 + (answered & other)
        order = cell.argsort(stable=True)
        key = ops.scrambled(torch.stack([batches, torch.full_like(batches, self.seed)])).sum()
        draw = ops.uniform(key + torch.arange(len(cell), device=cell.device))
        drawn = torch.empty_like(draw).scatter(0, order, draw) < torch.where(rewarded, self.positives, self.negatives)
        judged = drawn & answered
        seen = torch.stack([torch.ones_like(draw), judged.double(), (judged & other).double()], 1)
        counts.mul_(self.decay).view(-1, 3).index_add_(0, kind * 2 + rewarded, seen.to(counts))
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
            raise ValueError(f"methods.noisy_verifier.BackwardCorrected: least must be > 0, found {self.least}")

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
