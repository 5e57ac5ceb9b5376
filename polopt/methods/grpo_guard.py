"""GRPO-Guard: ratio normalisation for flow policies, so that one clip fits every noise level."""

from typing import Literal

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.method import Paper, method
from polopt.objectives import Clip, GRPOGuardRatio, InverseTimeStep, Surrogate, TokenMean
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
