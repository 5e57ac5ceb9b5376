"""Chi-square occupancy regularisation: a proxy reward is optimised only near the reference policy."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.ppo import ppo
from polopt.rewards import Discriminator, LogRatio, OutcomeReward, SumOfRewards
from polopt.rewards.parts import Reward


@method(
    paper=Paper(
        title="Correlated Proxies: A New Definition and Improved Mitigation for Reward Hacking",
        authors="Laidlaw, Cassidy and Singhal, Shivam and Dragan, Anca",
        year=2024,
        arxiv="2403.03185",
    ),
    changes="PPO on the proxy minus the root of the chi-square distance to the reference's occupancy, not a KL.",
    room="rewards",
    tier="proven",
)
def chi2_occupancy(
    *,
    group: int = 1,
    coefficient: float = 0.1,
    divergence: Literal["kl", "chi2", "sqrt_chi2", "tv"] = "sqrt_chi2",
    features: int | None = None,
    hidden: int = 64,
    limit: float | None = None,
) -> Algorithm:
    """max J(pi, proxy) - coefficient sqrt(chi2(mu_pi || mu_ref)), chi2 = E_pi[mu_pi / mu_ref] - 1, mu the discounted
    share of time in each state with each action. As a reward: -coefficient (e^d - 1) / sqrt(c) with
    d = log(mu_pi / mu_ref) and c the batch's mean of e^d - 1, 1 % trimmed on either side; e^d - 1 alone where c <= 0.

    features None is for language, where an answer is the whole trajectory: d is the sum of logp - ref_logp, and the
    penalty is on the last token. With a number, d is the output of a discriminator of that many features and `hidden`
    units at each decision, trained on each batch before the policy is, against fresh rollouts of the reference that
    the source provides (`rewards.Discriminator`); language training has none, and refuses it.

    The paper's theory has coefficient = std(proxy) sqrt(1 - r^2), r the correlation under the reference; its runs
    search a grid, and so should ours: the default 0.1 is not from the paper. Its name there is ORPO, as is that of
    odds-ratio preference optimisation. For language the authors' program adds coefficient sqrt(mean(e^d - 1 + e^-d -
    1)) to the loss and differentiates through d, which is half of chi2's gradient plus that of KL(ref || pi); ours is
    chi2's. Both follow e^d along its tangent beyond d = 10. Their trimming of fewer than 100 samples leaves none, hence
    no penalty; ours leaves all. Their tv trains another discriminator.
    """
    ratio: LogRatio = AnswerRatio() if features is None else Discriminator(features=features, hidden=hidden)
    price = Departure(coefficient=coefficient, divergence=divergence, log_ratio=ratio, limit=limit)
    return ppo(group=group, kl=0).but(reward=SumOfRewards(terms=[OutcomeReward(), price]))


Divergence = Literal["kl", "chi2", "sqrt_chi2", "tv"]


# Beyond a log-ratio of 10, exp is continued by its tangent, as in the authors' program for language models.
STEEP = 10.0


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
                "methods.chi2_occupancy.Departure: need coefficient >= 0, 0 <= trim < 0.5 and limit > 0 or None, found "
                f"{self.coefficient}, {self.trim} and {self.limit}"
            )

    def forward(self, experience: Experience) -> Tensor:
        d = self.log_ratio(experience)
        drawn = experience.mask.any(1) if d.ndim == 1 else experience.mask
        price = torch.zeros_like(d)
        price[drawn] = self.coefficient * departure(d[drawn], self.divergence, self.trim)
        return -(price if self.limit is None else price.clamp(-self.limit, self.limit))
