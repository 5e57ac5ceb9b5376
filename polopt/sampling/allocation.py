"""How many rollouts each task gets, as functions of numbers alone."""

from __future__ import annotations

import heapq
import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def knapsack_value(n: Float[Tensor, "*N"] | Int[Tensor, "*N"], p: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
    """What n >= 1 rollouts of a task of success p are worth:

        V(n, p) = (1 - p^n - (1 - p)^n) p (1 - p)^2

    The chance that right and wrong answers are among them, times how much one step on them lifts p, to first order.
    Concave in n: the next rollout is worth (p^n (1 - p) + (1 - p)^n p) p (1 - p)^2. Source: arXiv:2509.25849.
    """
    return (1 - p**n - (1 - p) ** n) * p * (1 - p) ** 2


def allocate(p: Float[Tensor, "M"], total: int, low: int = 2, up: int = 128) -> Int[Tensor, "M"]:
    """Counts n, low <= n_i <= up and sum n_i = total, of the largest sum of V(n_i, p_i).

    V is concave, so the next rollout goes to whomever it helps most: exact, in O(total log M). Level tasks share.

    Raises:
        ValueError: no such counts exist.
    """
    check_bounds(len(p), total, low, up)
    if not len(p):
        return torch.zeros(0, dtype=torch.int64)
    gains = _gains(p, low, up)
    counts = [low] * len(p)
    # Of level gains the task with fewer rollouts comes first.
    heap = [(-gains[i][0], low, i) for i in range(len(p)) if up > low]
    heapq.heapify(heap)
    for _ in range(total - low * len(p)):
        _, n, i = heap[0]
        counts[i] = n + 1
        if n + 1 < up:
            heapq.heapreplace(heap, (-gains[i][n + 1 - low], n + 1, i))
        else:
            heapq.heappop(heap)
    return torch.tensor(counts, dtype=torch.int64)


def _gains(p: Tensor, low: int, up: int) -> list[list[float]]:
    """[M][up - low] what one more rollout is worth to who has low, low + 1, ..., up - 1."""
    n, q = torch.arange(low, max(up, low + 1), dtype=torch.float64), p.double()[:, None]
    return ((q**n * (1 - q) + (1 - q) ** n * q) * q * (1 - q) ** 2).tolist()


def allocate_exactly(p: Float[Tensor, "M"], total: int, low: int = 2, up: int = 128) -> Int[Tensor, "M"]:
    """As `allocate`, by dynamic programming over tasks and budgets, which needs no concavity: O(M total (up - low)).

    This is how the paper solves it; here it is the oracle that the fast way is held to.
    """
    check_bounds(len(p), total, low, up)
    spare, choices = total - low * len(p), torch.arange(low, up + 1)
    best = torch.full((spare + 1,), -torch.inf, dtype=torch.float64)
    best[0] = 0
    taken = []
    for rate in p.double():
        worth = knapsack_value(choices.double(), rate)
        # [extra, spare]: with so many more than `low` for this task, the best of the earlier ones on the rest.
        rest = torch.stack([torch.cat([torch.full((k,), -torch.inf), best])[: spare + 1] for k in range(up - low + 1)])
        best, extra = (rest + worth[:, None]).max(0)
        taken.append(extra)
    counts, left = [], spare
    for extra in reversed(taken):
        counts.append(low + int(extra[left]))
        left -= int(extra[left])
    return torch.tensor(counts[::-1], dtype=torch.int64)


def check_bounds(tasks: int, total: int, low: int, up: int) -> None:
    """Raises ValueError where no counts between `low` and `up` add up to `total`."""
    if not 1 <= low <= up:
        raise ValueError(f"a budget needs 1 <= low <= up, found {low} and {up}")
    if not low * tasks <= total <= up * tasks:
        raise ValueError(
            f"a budget of {total} rollouts for {tasks} tasks is out of reach with {low} to {up} each; "
            "set group between low and up"
        )


def knapsack(
    rate: Float[Tensor, "M"], group: int, low: int = 2, up: int = 128, confidence: float | None = 0.9
) -> Int[Tensor, "M"]:
    """Counts of sum group * M from what is known of each task's success, NaN where nothing is.

    A task that nobody has tried gets `group`. Of the others each has `low`, and what is left goes to those of
    0 < p < 1 by value (`allocate`). They get no more than they need to see both kinds of answers with that `confidence`
    (`rollouts_needed`, on top of `low`): the rest goes evenly to the tasks that never succeeded, or, if there are
    none, to those that always did. confidence None leaves it to those of 0 < p < 1, up to `up` each.

    Raises:
        ValueError: group is not between low and up.
    """
    check_bounds(1, group, low, up)
    counts, known = torch.full((len(rate),), group, dtype=torch.int64), ~rate.isnan()
    p = rate[known].double()
    undecided = (p > 0) & (p < 1)
    others = (p == 0) if (p == 0).any() else ~undecided
    left, room, open_tasks = (group - low) * len(p), up - low, int(undecided.sum())
    spare = 0
    if others.any():
        wanted = torch.full((open_tasks,), room)
        if confidence is not None:
            wanted = rollouts_needed(p[undecided], confidence).clamp(max=room).long()
        spare = max(0, left - int(wanted.sum()))
    mine = torch.full((len(p),), low)
    mine[undecided] = allocate(p[undecided], low * open_tasks + left - spare, low, up)
    counts[known] = mine + (evenly(spare, others) if spare else 0)
    return counts


def rollouts_needed(p: Float[Tensor, "M"], confidence: float) -> Float[Tensor, "M"]:
    """After how many rollouts the likelier answer has not come alone, with this confidence:
    log(1 - confidence) / log(max(p, 1 - p)); infinite at p = 0 and 1."""
    return math.log(1 - confidence) / torch.maximum(p, 1 - p).log()


def evenly(total: int, among: Bool[Tensor, "M"]) -> Int[Tensor, "M"]:
    """`total` over those named, at least one; what is left over goes to the first of them, one each."""
    counts, count = torch.zeros(len(among), dtype=torch.int64), int(among.sum())
    counts[among] = total // count + (torch.arange(count) < total % count).long()
    return counts


def neyman(
    norm: Float[Tensor, "M"], rate: Float[Tensor, "M"], alpha: float = 0.0, beta: float = 2.0
) -> Float[Tensor, "M"]:
    """Shares of a budget, in proportion to G_i / sqrt(p_i + alpha / p_i^(beta - 1)); 0 where G or p is 0.

    With alpha = 0 they minimise sum_i G_i^2 / (n_i p_i), the variance of a sum of means over accepted rollouts, which
    is then (sum_i G_i / sqrt(p_i))^2 / n. alpha > 0 spares what is hardly ever accepted. All 0 where nobody has G and
    p. Source: arXiv:2505.02391; for alpha = 0, J. Neyman, 1934.
    """
    norm, rate = norm.double(), rate.double()
    known = (norm > 0) & (rate > 0)
    p = torch.where(known, rate, 1)
    share = torch.where(known, norm / (p + alpha / p ** (beta - 1)).sqrt(), 0)
    return share / share.sum() if known.any() else share


def apportioned(share: Float[Tensor, "M"], total: int) -> Int[Tensor, "M"]:
    """`total` in whole numbers nearest to share * total (shares of sum 1): rounded, then those that rounding wronged
    most are corrected, one each. A share of 0 stays 0."""
    exact = share.double() * total
    counts = exact.round().long()
    missing = total - int(counts.sum())
    if missing:
        wronged = torch.where(share > 0, (exact - counts) * (1 if missing > 0 else -1), -torch.inf)
        counts[wronged.argsort(descending=True, stable=True)[: abs(missing)]] += 1 if missing > 0 else -1
    return counts
