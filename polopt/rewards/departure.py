"""What it costs a policy to leave its reference: divergences between where the two spend their time, as a reward."""

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

# Beyond exp(10) a ratio goes on along its tangent, as in the authors' program for language models.
STEEP = 10.0


class LogRatio(Part):
    """`log_ratio(experience) -> [B] or [B, T]`: d, the log of how much likelier a row, or a decision in its state, is
    under the sampler than under the reference. Without gradient; what it says outside the mask does not count."""

    def forward(self, experience: Experience) -> Tensor:
        raise NotImplementedError


class AnswerRatio(LogRatio):
    """d = sum_t (logp_t - ref_logp_t), [B]: exact for whole answers, where all that is visited is one answer."""

    reads = frozenset({"rollout_logp", "ref_logp"})

    def forward(self, experience: Experience) -> Tensor:
        return torch.where(experience.mask, experience.rollout_logp - experience.ref_logp, 0).sum(1)


def excess(d: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
    """exp(d) - 1; along its tangent beyond d = 10."""
    return torch.where(d > STEEP, math.exp(STEEP) * (1 + d - STEEP) - 1, torch.expm1(d.clamp(max=STEEP)))


def trimmed_mean(x: Float[Tensor, "N"], share: float) -> Float[Tensor, ""]:
    """Mean of all but the `share` smallest and as many largest."""
    cut = min(int(share * len(x)), (len(x) - 1) // 2)
    return x.sort().values[cut : len(x) - cut].mean()


def departure(
    d: Float[Tensor, "N"], divergence: Divergence, trim: float = 0.0, chi2: Float[Tensor, ""] | float | None = None
) -> Float[Tensor, "N"]:
    """The price of each of N draws from the sampler, of which d is the log-ratio to the reference:

        kl: d        chi2: exp(d) - 1        sqrt_chi2: (exp(d) - 1) / sqrt(chi2), or as chi2 where that is not > 0
        tv: sign(d)

    As a reward, held fixed, its policy gradient is that of KL(mu || mu_ref), of chi2 / 2, of sqrt(chi2) and of the L1
    distance. chi2: None estimates E exp(d) - 1 by the trimmed mean of the draws.
    """
    if divergence in ("kl", "tv") or not len(d):
        return d.sign() if divergence == "tv" else d
    price = excess(d)
    if divergence == "chi2":
        return price
    size = torch.as_tensor(trimmed_mean(price, trim) if chi2 is None else chi2, dtype=d.dtype)
    return torch.where(size > 0, price / size.clamp(min=torch.finfo(d.dtype).tiny).sqrt(), price)


class Departure(Reward):
    """-coefficient * `departure`: of each answer [B], or of each decision [B, T], as `log_ratio` has it.

    The normaliser of sqrt_chi2 is that of the whole batch. limit: the most that one draw can be charged or paid. trim:
    the share of draws that the normaliser leaves out at either end. Where many decisions are charged, rewards must be
    discounted as the occupancy is. Source: correlated proxies, arXiv:2403.03185; `coefficient` is their lambda.
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
