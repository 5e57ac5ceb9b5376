"""GRPO-Guard: ratio normalisation for flow policies, so that one clip fits every noise level."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.method import Paper, method
from polopt.objectives import Clip, Surrogate, TokenMean
from polopt.objectives.parts import Ratio, Weight
from polopt.ops import LIMIT
from polopt.sampling import Rollouts


@method(
    paper=Paper(
        title="GRPO-Guard: Mitigating Implicit Over-Optimization in Flow Matching via Regulated Clipping",
        authors="Wang, Jing and others",
        year=2025,
        arxiv="2510.22319",
    ),
    changes="Flow-GRPO with each denoising step's ratio re-centred and rescaled, and its loss divided by its time.",
    room="objectives",
    tier="faithful",
)
def grpo_guard(*, group: int = 24, clip: float = 2e-6, reduce: Literal["sum", "mean"] = "mean") -> Algorithm:
    """A decision is a denoising step x ~ N(mu_t, s_t^2 I) that takes dt_t; A_i as in GRPO, and

        log rho_it = s_t (log r_it + |mu_t - mu'_t|^2 / (2 s_t^2))
        L = mean_it (1 / dt_t) max(-A_i rho_it, -A_i clip(rho_it, 1 - clip, 1 + clip))

    with mu' the sampler's mean. The policy must return its mean, `evaluation.extras["mean"]` [B, T, D], on
    batches that hold the sampler's `mean`, `std` [B, T] and `dt` [B, T] in extras; a language model has none.

    reduce "mean" divides log rho by the D dimensions, as Flow-GRPO does with log-probabilities; the clip of 2e-6 is
    verl-omni's, for images: with few dimensions or "sum" it must be far larger. The group of 24 is Flow-GRPO's. Its
    advantages are cut at 5, and it may add a KL to a reference; ours have neither. Where s does not depend on t and dt
    is 1 this is PPO on a Gaussian policy, with the ratio rho.
    """
    return Algorithm(
        sampling=Rollouts(group=group),
        credit=RelativeAdvantage(baseline=GroupMean(), scale=GroupStd()),
        objective=Surrogate(
            ratio=GRPOGuardRatio(reduce=reduce),
            trust=Clip(low=clip, high=clip),
            weights=[InverseTimeStep()],
            aggregate=TokenMean(),
        ),
    )


class GRPOGuardRatio(Ratio):
    """log rho_t = s_t (log r_t + |mu_t - mu'_t|^2 / (2 s_t^2)): a Gaussian step's ratio, re-centred and rescaled.

    A decision is x ~ N(mu, s^2 I) in D dimensions; mu is the policy's mean, mu' the sampler's. With z the sampled
    noise, log r = z (mu - mu') / s - |mu - mu'|^2 / (2 s^2) is mostly below 0, and the more so the smaller s;
    log rho = z (mu - mu') has mean 0 and the same spread at every s, so that one clip fits all steps. Within +-20.

    The sampler's `mean` [B, T, D] and `std` s [B, T] are read from the batch's extras, mu from the evaluation's
    `mean` [B, T, D]. reduce: log-probabilities of the batch are those of whole decisions, summed over their dimensions;
    "mean" divides log rho by D, as flow policies for images do. Source: GRPO-Guard, arXiv:2510.22319.

    Raises:
        ExperienceError: a mean or std of the wrong shape, or a std that is not positive.
    """

    reduce: Literal["sum", "mean"] = "mean"

    reads = frozenset({"rollout_logp", "extras.mean", "extras.std"})
    policy_outputs = frozenset({"extras.mean"})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        mean, old = evaluation.extras["mean"], experience.extras["mean"]
        if mean.ndim != 3 or old.shape != mean.shape:
            raise ExperienceError(
                "methods.grpo_guard.GRPOGuardRatio: the sampler's mean, experience.extras['mean'], and the policy's, "
                f"evaluation.extras['mean'], must be [B, T, D] alike, found {list(old.shape)} and {list(mean.shape)}"
            )
        std = _positive(experience, "std", "the standard deviation of each step", self)
        drift = torch.where(experience.mask[..., None], mean - old, 0).square().sum(-1)
        log_ratio = (evaluation.logp - experience.rollout_logp) * std + drift / (2 * std)
        return (log_ratio / mean.shape[-1] if self.reduce == "mean" else log_ratio).clamp(-LIMIT, LIMIT)


class InverseTimeStep(Weight):
    """1 / dt_t, with the length dt of each step's interval, `extras["dt"]` [B, T]: equal weight per time, not per step.

    Raises:
        ExperienceError: a dt that is not positive.
    """

    reads = frozenset({"extras.dt"})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        return _positive(experience, "dt", "the length of each step's interval", self).reciprocal()


def _positive(experience: Experience, name: str, meaning: str, by: Ratio | Weight) -> Tensor:
    """`extras[name]`, [B, T], with 1 where nothing was decided."""
    value = torch.where(experience.mask, experience.extras[name], 1)
    if not (value > 0).all():
        raise ExperienceError(
            f"{by!r}: experience.extras[{name!r}], {meaning}, must be positive, found {value.min().item():.3g}"
        )
    return value
