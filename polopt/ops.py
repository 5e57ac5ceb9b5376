"""Masked and grouped maths: pure functions over tensors, [B] rows and [B, T] decisions."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

KLEstimator = Literal["k1", "k2", "k3"]

# exp(20) is 5e8: far beyond any trust region, and far from overflow.
LIMIT = 20.0
# exp(-1e4) is 0 in every precision.
NOTHING = -1e4


def masked_sum(x: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Sum over the decisions; whatever stands elsewhere, NaN included, does not enter."""
    return torch.where(mask, x, 0).sum()


def masked_mean(x: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Mean over the decisions; 0 if there are none."""
    return masked_sum(x, mask) / mask.sum().clamp(min=1)


def reduce(
    terms: Float[Tensor, "B T"], weights: Float[Tensor, "B T"], denominator: Float[Tensor, ""]
) -> Float[Tensor, ""]:
    """The one reducer: sum_bt w_bt terms_bt / denominator, with decisions of weight 0 left out.

    The denominator belongs to the whole optimiser batch and is never guessed from what is at hand. It is a
    count, so 0 means that the whole batch is empty: the sum is then 0 and so is the result.
    """
    return (torch.where(weights != 0, terms, 0) * weights).sum() / denominator.clamp(min=1)


def group_index(group: Int[Tensor, "B"]) -> tuple[Int[Tensor, "B"], Int[Tensor, "groups"]]:
    """Each row's group as a number from 0, and each group's size."""
    _, index, count = torch.unique(group, return_inverse=True, return_counts=True)
    return index, count


def crossed(group: Int[Tensor, "B"], value: Tensor) -> Int[Tensor, "B"]:
    """Group numbers of the rows that share both their group and their value [B]."""
    _, kind = torch.unique(value, return_inverse=True)
    index, _ = group_index(group)
    return index * (kind.amax() + 1 if kind.numel() else 1) + kind


def group_sum(x: Float[Tensor, "B"], group: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Each row's group sum. Groups may differ in size and rows come in any order."""
    index, count = group_index(group)
    return x.new_zeros(len(count)).index_add(0, index, x)[index]


def group_size(group: Int[Tensor, "B"]) -> Int[Tensor, "B"]:
    """Each row's number of rows in its group, itself included."""
    index, count = group_index(group)
    return count[index]


def group_least(x: Float[Tensor, "B"], group: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Each row's group minimum."""
    index, count = group_index(group)
    return x.new_zeros(len(count)).scatter_reduce(0, index, x, "amin", include_self=False)[index]


def group_mean(x: Float[Tensor, "B"], group: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Each row's group mean; exactly x where the group is all equal."""
    # Rounding in the plain sum would leave an all-equal group a tiny difference, which a scale then blows up.
    least = group_least(x, group)
    return least + group_sum(x - least, group) / group_size(group)


def leave_one_out_mean(x: Float[Tensor, "B"], group: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Mean of the *other* rows of each row's group: (sum - x_i) / (n - 1); 0 for a group of one."""
    n, least = group_size(group), group_least(x, group)
    above = x - least
    return torch.where(n > 1, least + (group_sum(above, group) - above) / (n - 1).clamp(min=1), 0)


def group_std(x: Float[Tensor, "B"], group: Int[Tensor, "B"], correction: int = 1) -> Float[Tensor, "B"]:
    """Each row's group standard deviation, sqrt(sum (x - mean)^2 / (n - correction)).

    correction 1 is the sample's, 0 the population's. 0 where n <= correction.
    """
    n = group_size(group)
    squares = group_sum((x - group_mean(x, group)) ** 2, group)
    return torch.where(n > correction, (squares / (n - correction).clamp(min=1)).sqrt(), 0)


def last_decision(mask: Bool[Tensor, "B T"]) -> Bool[Tensor, "B T"]:
    """True at each row's last decision only."""
    after = mask.flip(1).cumsum(1).flip(1)
    return mask & (after == 1)


def per_decision_reward(
    reward: Float[Tensor, "B"] | Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Rewards by decision: an outcome [B] lands on the row's last decision."""
    if reward.ndim == 1:
        return torch.where(last_decision(mask), reward[:, None], 0)
    return torch.where(mask, reward, 0)


def kl_estimate(kind: KLEstimator, logp: Float[Tensor, "B T"], ref_logp: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Per-decision estimate of KL(policy || reference) from the policy's own samples, d = ref_logp - logp.

    k1 = -d: unbiased, any sign. k2 = d^2 / 2: biased, small variance. k3 = exp(d) - 1 - d: unbiased, >= 0.
    As a loss on the policy's own samples, k1's gradient averages to zero, k2's to the gradient of
    KL(policy || reference), k3's to that of KL(reference || policy). Beyond d = 20, k3 goes on along its
    tangent: finite in float32, with a gradient that still points to the reference.

    Source: J. Schulman, Approximating KL divergence, 2020.
    """
    d = ref_logp - logp
    if kind == "k1":
        return -d
    if kind == "k2":
        return d.square() / 2
    near = d.clamp(max=LIMIT)
    return torch.expm1(near) + near.exp() * (d - near) - d


def discounted_to_go(
    x: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], discount: float, ended: Bool[Tensor, "B T"] | None = None
) -> Float[Tensor, "B T"]:
    """y_t = x_t + discount * y_next, over the decisions alone: positions in between do not count.

    ended: decisions after which nothing follows, y_next = 0.
    """
    y = torch.zeros_like(x)
    carry = x.new_zeros(len(x))
    for t in range(x.shape[1] - 1, -1, -1):
        after = carry if ended is None else torch.where(ended[:, t], 0, carry)
        carry = torch.where(mask[:, t], x[:, t] + discount * after, carry)
        y[:, t] = torch.where(mask[:, t], carry, 0)
    return y


def gae(
    reward: Float[Tensor, "B T"],
    value: Float[Tensor, "B T"],
    final_value: Float[Tensor, "B T"],
    terminated: Bool[Tensor, "B T"],
    truncated: Bool[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    gamma: float,
    lam: float,
) -> Float[Tensor, "B T"]:
    """Generalised advantage estimation, arXiv:1506.02438, over the decisions alone.

    delta_t = r_t + gamma V_next - V_t and A_t = delta_t + gamma lam A_next, where "next" is the row's next
    decision. At a terminated decision V_next = 0; at a truncated one V_next = final_value_t, the value of
    the state in which the episode was cut off; after either, A_next = 0.
    """
    advantage = torch.zeros_like(value)
    carry = following = value.new_zeros(len(value))
    for t in range(value.shape[1] - 1, -1, -1):
        decided = mask[:, t]
        done, cut = terminated[:, t] & decided, truncated[:, t] & decided
        following = torch.where(cut, final_value[:, t], following)
        following = torch.where(done, 0, following)
        delta = reward[:, t] + gamma * following - value[:, t]
        now = delta + gamma * lam * torch.where(done | cut, 0, carry)
        advantage[:, t] = torch.where(decided, now, 0)
        carry = torch.where(decided, now, carry)
        following = torch.where(decided, value[:, t], following)
    return advantage


def kept_choices(logits: Float[Tensor, "*N V"], top_k: int, top_p: float) -> Bool[Tensor, "*N V"]:
    """Which choices top-k, then top-p, keep. Ties at the k-th place are all kept; at least one choice is."""
    keep = torch.ones_like(logits, dtype=torch.bool)
    if 0 < top_k < logits.shape[-1]:
        keep = logits >= logits.topk(top_k, dim=-1).values[..., -1:]
    if top_p < 1:
        p, order = logits.masked_fill(~keep, -torch.inf).softmax(-1).sort(-1, descending=True)
        # A choice stays if the mass before it has not reached top_p yet.
        stays = p.cumsum(-1) - p < top_p
        keep = keep & torch.zeros_like(keep).scatter(-1, order, stays)
    return keep


def wide(logits: Tensor) -> Tensor:
    """In float32, or float64 if they are: log-probabilities in half precision are too coarse for a ratio."""
    return logits if logits.dtype == torch.float64 else logits.float()


def entropy_of(logp: Float[Tensor, "*N V"]) -> Float[Tensor, "*N"]:
    """-sum p log p in nats from normalised log-probabilities, with 0 log 0 = 0."""
    # Where exp is exactly 0, and far from numbers that a gradient's factor would carry to infinity, and 0 * inf to NaN.
    return -(logp.exp() * logp.clamp(min=NOTHING)).sum(-1)


def mean_logp(logp: Float[Tensor, "*N V"]) -> Float[Tensor, "*N"]:
    """Mean of log p over the choices that there are, from normalised log-probabilities, -inf where there is none."""
    real = logp > -torch.inf
    return torch.where(real, logp, 0).sum(-1) / real.sum(-1)


def log1mexp(x: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
    """log(1 - exp(x)) for x <= 0: what a probability leaves to the others. 0 is taken one rounding lower."""
    x = x.clamp(max=-torch.finfo(x.dtype).eps)
    return torch.where(x > -0.6931, (-torch.expm1(x)).log(), torch.log1p(-x.exp()))


def jensen_shannon(logp: Float[Tensor, "*N K"], logq: Float[Tensor, "*N K"], alpha: float) -> Float[Tensor, "*N"]:
    """Generalised Jensen-Shannon divergence of two laws from their log-probabilities, with m = (1 - alpha) p + alpha q:

        alpha KL(q || m) + (1 - alpha) KL(p || m);    alpha 0 is KL(q || p), alpha 1 is KL(p || q).

    The ends are the limits' directions, not their values, which are 0. `NOTHING` stands for a probability of 0.
    Source: generalised knowledge distillation, arXiv:2306.13649.
    """
    kl = lambda a, b: (a.exp() * (a - b)).sum(-1)  # noqa: E731
    if alpha in (0, 1):
        return kl(logq, logp) if alpha == 0 else kl(logp, logq)
    mixture = torch.logaddexp(logp + math.log1p(-alpha), logq + math.log(alpha))
    return alpha * kl(logq, mixture) + (1 - alpha) * kl(logp, mixture)


def next_decision(x: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """x at the row's next decision, at each decision; 0 at the last one and outside the mask."""
    T = mask.shape[1]
    at = torch.where(mask, torch.arange(T, device=mask.device), T)
    # The first decision at or after each column, moved by one.
    after = torch.cat([at.flip(1).cummin(1).values.flip(1)[:, 1:], at.new_full((len(at), 1), T)], 1)
    padded = torch.cat([torch.where(mask, x, 0), x.new_zeros(len(x), 1)], 1)
    return torch.where(mask, padded.gather(1, after), 0)
