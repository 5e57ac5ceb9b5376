"""Masked and grouped maths: pure functions over tensors, [B] rows and [B, T] decisions."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from polopt.support import Support

KLEstimator = Literal["k1", "k2", "k3"]

# exp(20) is 5e8: far beyond any trust region, and far from overflow.
LIMIT = 20.0
# exp(-1e4) is 0 in every precision.
NOTHING = -1e4
# Entropies below this are one certainty like another, and log-entropies closer than this one level.
CERTAIN, ALIKE = 1e-8, 1e-4


def masked_sum(x: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Sum over the decisions; whatever stands elsewhere, NaN included, does not enter."""
    return torch.where(mask, x, 0).sum()


def masked_mean(x: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Mean over the decisions; 0 if there are none."""
    return masked_sum(x, mask) / mask.sum().clamp(min=1)


def row_mean(x: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B"]:
    """Mean over each row's decisions, exactly x where they are all equal; 0 for a row without decisions."""
    # Measured from the first decision: rounding must not part rows of one advantage and different lengths.
    first = x.gather(1, mask.int().argmax(1, keepdim=True))
    above = torch.where(mask, x - first, 0).sum(1) / mask.sum(1).clamp(min=1)
    return torch.where(mask.any(1), first.squeeze(1) + above, 0)


def row_size(x: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B"]:
    """Largest |x| over each row's decisions; 0 for a row without decisions."""
    size = torch.where(mask, x, 0).abs()
    return size.amax(1) if size.shape[1] else size.new_zeros(len(size))


def reduce(
    terms: Float[Tensor, "B T"], weights: Float[Tensor, "B T"], denominator: Float[Tensor, ""]
) -> Float[Tensor, ""]:
    """The one reducer: sum_bt w_bt terms_bt / denominator, with decisions of weight 0 left out.

    The denominator belongs to the whole optimiser batch and is never guessed from what is at hand. It is a
    count, so 0 means that the whole batch is empty: the sum is then 0 and so is the result.
    """
    return (torch.where(weights != 0, terms, 0) * weights).sum() / denominator.clamp(min=1)


def take(x: Tensor, index: Tensor) -> Tensor:
    """[*I, ...] the rows of x [N, ...] at an index [*I], which may repeat. The gradient of a row that is taken more
    than once is summed in one order, whatever the threads do: advanced indexing on a CPU sums it in the order in which
    its threads arrive."""
    if x.device.type != "cpu":  # here indexing sorts, and index_select adds as threads arrive
        return x[index]
    return x.index_select(0, index.reshape(-1)).view(*index.shape, *x.shape[1:])


def group_index(group: Int[Tensor, "B"]) -> tuple[Int[Tensor, "B"], Int[Tensor, "groups"]]:
    """Each row's group as a number from 0, and each group's size."""
    _, index, count = torch.unique(group, return_inverse=True, return_counts=True)
    return index, count


def crossed(group: Int[Tensor, "B"], value: Tensor) -> Int[Tensor, "B"]:
    """Group numbers of the rows that share both their group and their value [B]."""
    _, kind = torch.unique(value, return_inverse=True)
    index, _ = group_index(group)
    return index * (kind.amax() + 1 if kind.numel() else 1) + kind


def numbered(labels: Sequence[Hashable]) -> list[int]:
    """Each label's number, from 0 in the order of first appearance."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(label, len(numbers)) for label in labels]


def places(x: Float[Tensor, "B"], group: Int[Tensor, "B"]) -> tuple[Int[Tensor, "B"], Int[Tensor, "B"]]:
    """How many rows of each row's group lie below it, and how many are level with it, itself included."""
    index, size = group_index(group)
    level, count = group_index(crossed(group, x))  # numbered by group, then by value
    return (count.cumsum(0) - count)[level] - (size.cumsum(0) - size)[index], count[level]


def upper_share(x: Float[Tensor, "B"], group: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """1 for rows in the upper half of their group by x, 0 in the lower, which holds floor(n / 2) of n rows.

    Level rows that the border runs through belong to both halves, each by the share of them that lies above it:
    which of them came first must not decide.
    """
    below, level = places(x, group)
    above = below + level - group_size(group) // 2
    return above.clamp(min=0).minimum(level).to(x.dtype) / level


def normal_scores(x: Float[Tensor, "B"], group: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Each row's rank in its group as a quantile of N(0, 1): Phi^-1((rank - 1/2) / n), level rows their mean.

    Exactly antisymmetric: turning the order round changes signs alone, and a group of one or all level has 0.
    """
    below, level = places(x, group)
    size = group_size(group)
    scores = torch.zeros_like(x)
    for n in size.unique().tolist():
        # Sums from one table, so that equal ranks in different groups have equal scores: they may be ranked again.
        quantiles = torch.special.ndtri((torch.arange(n, dtype=torch.float64, device=x.device) + 0.5) / n)
        total = torch.nn.functional.pad(quantiles.cumsum(0), (1, 0))
        rows = size == n
        first, last = below[rows], below[rows] + level[rows]
        mirrored = total[n - first] - total[n - last]
        scores[rows] = ((total[last] - total[first] - mirrored) / (2 * level[rows])).to(x.dtype)
    return scores


def group_sum(x: Float[Tensor, "B"], group: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Each row's group sum. Groups may differ in size and rows come in any order."""
    index, count = group_index(group)
    return x.new_zeros(len(count)).index_add(0, index, x)[index]


def group_size(group: Int[Tensor, "B"]) -> Int[Tensor, "B"]:
    """Each row's number of rows in its group, itself included."""
    index, count = group_index(group)
    return count[index]


def group_first(group: Int[Tensor, "B"]) -> Int[Tensor, "groups"]:
    """The first row of each group, in the order of their numbers."""
    index, count = group_index(group)
    rows = torch.arange(len(group), device=group.device)
    return torch.zeros_like(count).scatter_reduce(0, index, rows, "amin", include_self=False)


def group_least(x: Float[Tensor, "B"], group: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Each row's group minimum."""
    index, count = group_index(group)
    return x.new_zeros(len(count)).scatter_reduce(0, index, x, "amin", include_self=False)[index]


def group_mean(
    x: Float[Tensor, "B"], group: Int[Tensor, "B"], count: Int[Tensor, "B"] | None = None
) -> Float[Tensor, "B"]:
    """Each row's group mean; exactly x where the group is all equal. count: how often each row counts, None for once.

    A group that does not count at all has its least x for a mean.
    """
    # Rounding in the plain sum would leave an all-equal group a tiny difference, which a scale then blows up.
    least = group_least(x, group)
    if count is None:
        return least + group_sum(x - least, group) / group_size(group)
    return least + group_sum(count * (x - least), group) / _group_count(x, group, count).clamp(min=1)


def _group_count(x: Float[Tensor, "B"], group: Int[Tensor, "B"], count: Int[Tensor, "B"] | None) -> Tensor:
    return group_size(group) if count is None else group_sum(count.to(x.dtype), group)


def leave_one_out_mean(x: Float[Tensor, "B"], group: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Mean of the *other* rows of each row's group: (sum - x_i) / (n - 1); 0 for a group of one."""
    n, least = group_size(group), group_least(x, group)
    above = x - least
    return torch.where(n > 1, least + (group_sum(above, group) - above) / (n - 1).clamp(min=1), 0)


def group_std(
    x: Float[Tensor, "B"], group: Int[Tensor, "B"], correction: int = 1, count: Int[Tensor, "B"] | None = None
) -> Float[Tensor, "B"]:
    """Each row's group standard deviation, sqrt(sum (x - mean)^2 / (n - correction)).

    correction 1 is the sample's, 0 the population's. 0 where n <= correction. count: as in `group_mean`; n is its sum.
    """
    n = _group_count(x, group, count)
    squares = (x - group_mean(x, group, count)) ** 2
    squares = group_sum(squares if count is None else count * squares, group)
    return torch.where(n > correction, (squares / (n - correction).clamp(min=1)).sqrt(), 0)


def prior_error(
    mean: Float[Tensor, "*N"], prior: Float[Tensor, "*N"], variance: Float[Tensor, "*N"]
) -> Float[Tensor, "*N"]:
    """max(0, (mean - prior)^2 - variance): the squared error of a prior, by a mean of this variance. 0 where chance
    alone would put the two that far apart."""
    return ((mean - prior).square() - variance).clamp(min=0)


def group_place(x: Float[Tensor, "B"], group: Int[Tensor, "B"]) -> Int[Tensor, "B"]:
    """Each row's place in its group: 0 for the largest x, ties in the order of the rows."""
    # Stable sorts: by value, then by group.
    order = x.argsort(descending=True, stable=True)
    order = order[group[order].argsort(stable=True)]
    index, size = group_index(group[order])
    place = torch.arange(len(order), device=x.device) - (size.cumsum(0) - size)[index]
    return torch.empty_like(order).scatter(0, order, place)


def top_share(score: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], share: float) -> Bool[Tensor, "B T"]:
    """The largest scores of each row: round(share n) of its n decisions, at least one. Ties: the earlier decision."""
    order = torch.where(mask, score, -torch.inf).argsort(dim=1, descending=True, stable=True)
    count = (share * mask.sum(1, keepdim=True)).round().clamp(min=1)
    return mask & (order.argsort(1) < count)


def group_logsumexp(x: Float[Tensor, "B"], group: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Each row's log of its group's sum of exp(x)."""
    most = -group_least(-x, group)
    return most + group_sum((x - most).exp(), group).log()


def turns(
    turn: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "turns"], Int[Tensor, "turns"]]:
    """Numbers the turns in which something was decided, row by row and in their order: each decision's number (0
    elsewhere), and each turn's row and number of decisions."""
    row = torch.arange(len(turn), device=turn.device)[:, None].expand(turn.shape)
    decided = turn[mask].long()
    first = decided.amin() if decided.numel() else 0
    span = decided.amax() - first + 1 if decided.numel() else 1
    found, index, size = torch.unique(row[mask] * span + decided - first, return_inverse=True, return_counts=True)
    return torch.zeros_like(row).masked_scatter(mask, index), found // span, size


def turn_mean(x: Float[Tensor, "B T"], turn: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "turns"]:
    """Mean over the decisions of each turn, numbered as in `turns`."""
    number, _, size = turns(turn, mask)
    return x.new_zeros(len(size)).index_add(0, number[mask], x[mask]) / size


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


def scrambled(keys: Int[Tensor, "*N"]) -> Int[Tensor, "*N"]:
    """A bijection of the 64-bit integers that leaves nothing of the order of its arguments: counters become noise.

    The output function of SplitMix64 (Steele, Lea and Flood 2014), in integers that wrap around.
    """
    x = keys.long() - 0x61C8864680B583EB
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * -0x40A7B892E31B1A47
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * -0x6B2FB644ECCEEE15
    return x ^ ((x >> 31) & ((1 << 33) - 1))


def uniform(keys: Int[Tensor, "*N"]) -> Float[Tensor, "*N"]:
    """Float64 in [0, 1), a function of the keys alone, the same on every device."""
    return ((scrambled(keys) >> 11) & ((1 << 53) - 1)).double() / (1 << 53)


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


def entropy_scale(entropy: Float[Tensor, "N"], quantile: float) -> tuple[float, float, float]:
    """Lowest, pivot and highest logarithm of N >= 1 entropies; the pivot is their quantile, the nearest that occurs."""
    log = entropy.clamp(min=CERTAIN).log()
    pivot = log.kthvalue(round(quantile * (len(log) - 1)) + 1).values
    lowest, middle, highest = torch.stack([log.min(), pivot, log.max()]).double().tolist()
    return lowest, middle, highest


def entropy_level(
    entropy: Float[Tensor, "*N"], lowest: float, pivot: float, highest: float, *, released: bool = False
) -> Float[Tensor, "*N"]:
    """h in [-1, 1]: where log-entropies z stand on the scale of `entropy_scale`,

        h = (z - pivot) / (highest - pivot) above the pivot, (z - pivot) / (pivot - lowest) below it, bounded.

    HAPO (arXiv:2509.16591) divides by a standard deviation about the pivot first, which cancels. released: |h|, as its
    program computes it, where both sides are divided by a number of their own sign.
    """
    z = entropy.clamp(min=CERTAIN).log() - pivot
    h = torch.where(z > 0, z / max(highest - pivot, ALIKE), z / max(pivot - lowest, ALIKE)).clamp(-1, 1)
    return h.abs() if released else h


def temperatures(support: Support, entropy: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
    """The temperature of each decision, of which `entropy` is the entropy at the support's temperature alone."""
    rule = support.by_entropy
    if rule is None:
        return torch.full_like(entropy, support.temperature)
    h = entropy_level(entropy, rule.lowest, rule.pivot, rule.highest, released=rule.released)
    return support.temperature * (1 + rule.strength * h)


def heated(logits: Float[Tensor, "*N V"], temperature: float | Float[Tensor, "*N"]) -> Float[Tensor, "*N V"]:
    """Logits over one temperature for all, or over one for each distribution; they keep their precision."""
    if isinstance(temperature, Tensor):
        return logits / temperature[..., None].to(logits.dtype)
    return logits if temperature == 1 else logits / temperature


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
