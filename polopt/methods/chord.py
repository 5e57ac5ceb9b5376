"""CHORD: GRPO and supervised fine-tuning in one loss, with weights that vary over training and by token."""

from __future__ import annotations

from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.objectives import (
    Clip,
    Surrogate,
    TokenMean,
    TokenRatio,
    Weight,
    with_imitation,
)
from polopt.sampling import Rollouts, WithDemonstrations
from polopt.schedules import Schedule, Shape


def fading(peak: float = 0.9, valley: float = 0.05, *, warmup: int = 0, decay: int = 200) -> Schedule:
    """Schedule of CHORD-mu, the share of the demonstrations: `peak` t / warmup in batch t < warmup, then half a cosine
    from `peak` down to `valley`, which stays; with decay 0 `valley` follows the rise at once."""
    if decay:
        knots = {0: 0.0, warmup: peak, warmup + decay: valley}
    else:  # a jump between two batches
        knots = {0: 0.0, warmup - 1: peak * (warmup - 1) / warmup, warmup: valley} if warmup else {0: valley}
    fall: list[Shape] = ["cosine"] if decay else []
    rise: list[Shape] = ["linear"] * (len(knots) - 1 - len(fall))
    return Schedule(knots=sorted(knots.items()), shape=rise + fall)


class UncertaintyWeight(Weight):
    """w = p (1 - p), at most 1/4, at p = 1/2: neither almost certain nor improbable decisions have weight.

    The weight vanishes as p goes to 0, so that truly new decisions are not learned. Source: phi in CHORD,
    arXiv:2508.11408.
    """

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        p = evaluation.logp.detach().exp()
        return p * (1 - p)


@method(
    paper=Paper(
        title="On-Policy RL Meets Off-Policy Experts: Harmonizing Supervised Fine-Tuning and Reinforcement Learning "
        "via Dynamic Weighting",
        authors="Zhang, Wenhao and others",
        year=2025,
        arxiv="2508.11408",
    ),
    changes="GRPO and the likelihood of expert rows in one loss, weighed 1 - mu and mu; a token counts as p (1 - p).",
    room="objectives",
    tier="faithful",
)
def chord(
    *,
    group: int = 8,
    clip: float = 0.2,
    mu: float | Schedule = 0.1,
    weight: Weight | None = UncertaintyWeight(),  # noqa: B008
    each: float = 0.25,
) -> Algorithm:
    """With p = exp(logp) of an expert's token, over the batch's rollouts and its expert rows apart,

        L = (1 - mu) mean_t max(-A r, -A clip(r, 1 - clip, 1 + clip)) - mu mean_t sg(p (1 - p)) logp

    and A GRPO's z-score of the rollouts alone. The defaults are CHORD-phi. CHORD-mu is mu=fading(), weight=None;
    weight=ProbabilityWeight() is the paper's variant with the importance weight p. p (1 - p) goes to 0 with p, so
    that truly new tokens are hardly learned: take a larger mu, or no weight, for those.

    each: expert rows for every rollout (64 to 256 in the reference code), from the tasks that come next. Both means
    are over the tokens of the optimiser batch; the reference code averages micro-batches.
    """
    rest = mu.but(knots=[(t, 1 - value) for t, value in mu.knots]) if isinstance(mu, Schedule) else 1 - mu
    return Algorithm(
        sampling=Rollouts(group=group, mix=[WithDemonstrations(each=each)]),
        credit=RelativeAdvantage(baseline=GroupMean(), scale=GroupStd()),
        objective=with_imitation(
            Surrogate(ratio=TokenRatio(), trust=Clip(low=clip, high=clip), aggregate=TokenMean()),
            mu.but() if isinstance(mu, Schedule) else mu,
            rollout_weight=rest,
            token_weights=[weight.but()] if weight else [],
        ),
    )
