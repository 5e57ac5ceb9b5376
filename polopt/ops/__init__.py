"""Masked and grouped maths: pure functions over tensors, [B] rows and [B, T] decisions."""

from __future__ import annotations

from polopt.ops.distributions import (
    NOTHING,
    entropy_of,
    heated,
    kept_choices,
    log1mexp,
    mean_logp,
    wide,
    with_rest,
)
from polopt.ops.divergence import LIMIT, KLEstimator, jensen_shannon, kl_estimate
from polopt.ops.entropy import entropy_level, entropy_scale, temperatures
from polopt.ops.flows import noised
from polopt.ops.grouped import (
    crossed,
    group_first,
    group_index,
    group_least,
    group_logsumexp,
    group_mean,
    group_place,
    group_size,
    group_std,
    group_sum,
    leave_one_out_mean,
    normal_scores,
    numbered,
    places,
    prior_error,
)
from polopt.ops.masked import cleared, masked_mean, masked_sum, reduce, row_mean, row_size
from polopt.ops.positions import last_decision, next_decision, take, top_share, turn_mean, turns
from polopt.ops.returns import discounted_to_go, gae, per_decision_end, per_decision_reward
from polopt.ops.rng import scrambled, uniform

__all__ = [
    "LIMIT",
    "NOTHING",
    "KLEstimator",
    "cleared",
    "crossed",
    "discounted_to_go",
    "entropy_level",
    "entropy_of",
    "entropy_scale",
    "gae",
    "group_first",
    "group_index",
    "group_least",
    "group_logsumexp",
    "group_mean",
    "group_place",
    "group_size",
    "group_std",
    "group_sum",
    "heated",
    "jensen_shannon",
    "kept_choices",
    "kl_estimate",
    "last_decision",
    "leave_one_out_mean",
    "log1mexp",
    "masked_mean",
    "masked_sum",
    "mean_logp",
    "next_decision",
    "noised",
    "normal_scores",
    "numbered",
    "per_decision_end",
    "per_decision_reward",
    "places",
    "prior_error",
    "reduce",
    "row_mean",
    "row_size",
    "scrambled",
    "take",
    "temperatures",
    "top_share",
    "turn_mean",
    "turns",
    "uniform",
    "wide",
    "with_rest",
]
