"""Divergence penalties on the occupancy of a policy relative to that of its reference, as a reward."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from polopt.experience import Experience
from polopt.part import Part
from polopt.rewards.parts import Reward

Divergence = Literal["kl", "chi2", "sqrt_chi2", "tv"]

# Beyond a log-ratio of 10, exp is continued by its tangent, as in the authors' program for language models.
STEEP = 10.0


class LogRatio(Part):
    """Log-ratio d of the sampler's and the reference's probability: `log_ratio(experience) -> [B] or [B, T]`.

    The probability is that of a row, or of a decision in its state. No gradient; values outside the mask are ignored.
    """

    def forward(self, experience: Experience) -> Tensor:
        raise NotImplementedError


class AnswerRatio(LogRatio):
    """Log-ratio d = sum_t (rollout_logp_t - ref_logp_t) of whole answers, [B].

    It is the exact occupancy ratio where an episode is one answer.
    """

    reads = frozenset({"rollout_logp", "ref_logp"})

    def forward(self, experience: Experience) -> Tensor:
        return torch.where(experience.mask, experience.rollout_logp - experience.ref_logp, 0).sum(1)


def excess(d: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
    """Returns exp(d) - 1, continued by its tangent beyond d = 10."""
    return torch.where(d > STEEP, math.exp(STEEP) * (1 + d - STEEP) - 1, torch.expm1(d.clamp(max=STEEP)))


def trimmed_mean(x: Float[Tensor, "N"], share: float) -> Float[Tensor, ""]:
    """Returns the mean without the fraction `share` of the smallest values and as many of the largest."""
    cut = min(int(share * len(x)), (len(x) - 1) // 2)
    return x.sort().values[cut : len(x) - cut].mean()


def departure(
    d: Float[Tensor, "N"], divergence: Divergence, trim: float = 0.0, chi2: Float[Tensor, ""] | float | None = None
) -> Float[Tensor, "N"]:
    """Returns the divergence penalty of each of N samples of the sampler with log-ratio d to the reference:
        kl: d        chi2: exp(d) - 1        sqrt_chi2: (exp(d) - 1) / sqrt(chi2), or as chi2 where that is not > 0
        tv: sign(d)

    As a constant reward, its policy gradient is that of KL(mu || mu_ref), of chi2 / 2, of sqrt(chi2) and of the L1
    distance, respectively.

    trim: fraction of the samples that the estimate of chi2 leaves out at either end.
    chi2: the normaliser of sqrt_chi2; None estimates E exp(d) - 1 by the trimmed mean of the samples.
    """
    if divergence in ("kl", "tv") or not len(d):
        return d.sign() if divergence == "tv" else d
    price = excess(d)
    if divergence == "chi2":
        return price
    size = torch.as_tensor(trimmed_mean(price, trim) if chi2 is None else chi2, dtype=d.dtype)
    return torch.where(size > 0, price / size.clamp(min=torch.finfo(d.dtype).tiny).sqrt(), price)


class Departure(Reward):
    """Reward -coefficient * `departure`, of each answer [B] or of each decision [B, T], depending on `log_ratio`.

    The normaliser of sqrt_chi2 is that of the whole batch. With penalties per decision, rewards must be discounted as
    the occupancy is. Source: correlated proxies, arXiv:2403.03185; `coefficient` is their lambda.

    limit: bound on the absolute value of one sample's penalty, None for no bound.
    trim: fraction of the samples that the normaliser leaves out at either end.
    """

    coefficient: float = 0.1
    divergence: Divergence = "sqrt_chi2"
    log_ratio: LogRatio = AnswerRatio()
    trim: float = 0.01
    limit: float | None = None

    @property
    def reads_batch(self) -> bool:  # type: ignore[override]
        return self.divergence == "sqrt_chi2"

    def setup(self) -> None:
        if self.coefficient < 0 or not 0 <= self.trim < 0.5 or (self.limit is not None and self.limit <= 0):
            raise ValueError(
                "rewards.Departure: need coefficient >= 0, 0 <= trim < 0.5 and limit > 0 or None, found "
                f"{self.coefficient}, {self.trim} and {self.limit}"
            )

    def forward(self, experience: Experience) -> Tensor:
        d = self.log_ratio(experience)
        drawn = experience.mask.any(1) if d.ndim == 1 else experience.mask
        price = torch.zeros_like(d)
        price[drawn] = self.coefficient * departure(d[drawn], self.divergence, self.trim)
        return -(price if self.limit is None else price.clamp(-self.limit, self.limit))
