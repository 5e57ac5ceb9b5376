"""Computes how many rollouts each task gets, as functions of numbers alone."""

from __future__ import annotations

import heapq
import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def knapsack_value(n: Float[Tensor, "*N"] | Int[Tensor, "*N"], p: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
    """Returns the value of n >= 1 rollouts of a task with success rate p:

        V(n, p) = (1 - p^n - (1 - p)^n) p (1 - p)^2

    V is the probability that the rollouts hold both right and wrong answers, times the first-order gain in p of one
    step on them. V is concave in n: the next rollout adds (p^n (1 - p) + (1 - p)^n p) p (1 - p)^2. Source:
    arXiv:2509.25849.
    """
    return (1 - p**n - (1 - p) ** n) * p * (1 - p) ** 2


def allocate(p: Float[Tensor, "M"], total: int, low: int = 2, up: int = 128) -> Int[Tensor, "M"]:
    """Returns counts with low <= n_i <= up and sum n_i = total that maximise the sum of V(n_i, p_i).

    V is concave, so giving each next rollout to the task of the largest gain is exact, in O(total log M). Tasks of
    equal gains get rollouts in turn.

    Raises:
        ValueError: no such counts exist.
    """
    check_bounds(len(p), total, low, up)
    if not len(p):
        return torch.zeros(0, dtype=torch.int64)
    gains = _gains(p, low, up)
    counts = [low] * len(p)
    # Among equal gains the task with fewer rollouts comes first.
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
    """Returns, as [M][up - low], the value of one more rollout for a task that has low, low + 1, ..., up - 1."""
    n, q = torch.arange(low, max(up, low + 1), dtype=torch.float64), p.double()[:, None]
    return ((q**n * (1 - q) + (1 - q) ** n * q) * q * (1 - q) ** 2).tolist()


def allocate_exactly(p: Float[Tensor, "M"], total: int, low: int = 2, up: int = 128) -> Int[Tensor, "M"]:
    """Returns the counts of `allocate`, by dynamic programming over tasks and budgets, without use of concavity.

    The cost is O(M total (up - low)). This is the paper's algorithm; here it is the reference for tests of `allocate`.
    """
    check_bounds(len(p), total, low, up)
    spare, choices = total - low * len(p), torch.arange(low, up + 1)
    best = torch.full((spare + 1,), -torch.inf, dtype=torch.float64)
    best[0] = 0
    taken = []
    for rate in p.double():
        worth = knapsack_value(choices.double(), rate)
        # [extra, spare]: the best value of the earlier tasks on the rest, if this task gets `extra` more than `low`.
        rest = torch.stack([torch.cat([torch.full((k,), -torch.inf), best])[: spare + 1] for k in range(up - low + 1)])
        best, extra = (rest + worth[:, None]).max(0)
        taken.append(extra)
    counts, left = [], spare
    for extra in reversed(taken):
        counts.append(low + int(extra[left]))
        left -= int(extra[left])
    return torch.tensor(counts[::-1], dtype=torch.int64)


def check_bounds(tasks: int, total: int, low: int, up: int) -> None:
    """Raises ValueError if no counts between `low` and `up` add up to `total`."""
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
    """Returns counts of sum group * M from each task's success rate, NaN for a task without a record.

    A task without a record gets `group`. Every other task has `low`, and the rest of the budget goes to tasks of
    0 < p < 1 by value (`allocate`). Such a task gets no more (on top of `low`) than it needs to show both right and
    wrong answers with that `confidence` (`rollouts_needed`). What remains then is split evenly among the tasks that
    never succeeded, or, if there are none, among those that always did. With confidence None it stays with the tasks of
    0 < p < 1, up to `up` each.

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
        required = torch.full((open_tasks,), room)
        if confidence is not None:
            required = rollouts_needed(p[undecided], confidence).clamp(max=room).long()
        spare = max(0, left - int(required.sum()))
    allocated = torch.full((len(p),), low)
    allocated[undecided] = allocate(p[undecided], low * open_tasks + left - spare, low, up)
    counts[known] = allocated + (evenly(spare, others) if spare else 0)
    return counts


def rollouts_needed(p: Float[Tensor, "M"], confidence: float) -> Float[Tensor, "M"]:
    """Returns the number of rollouts after which, with this confidence, both right and wrong answers have occurred:
    log(1 - confidence) / log(max(p, 1 - p)), infinite at p = 0 and 1."""
    return math.log(1 - confidence) / torch.maximum(p, 1 - p).log()


def evenly(total: int, among: Bool[Tensor, "M"]) -> Int[Tensor, "M"]:
    """Splits `total` evenly over the tasks in `among` (at least one); the first of them get one more each for the
    remainder."""
    counts, count = torch.zeros(len(among), dtype=torch.int64), int(among.sum())
    counts[among] = total // count + (torch.arange(count) < total % count).long()
    return counts


def neyman(
    norm: Float[Tensor, "M"], rate: Float[Tensor, "M"], alpha: float = 0.0, beta: float = 2.0
) -> Float[Tensor, "M"]:
    """Returns shares of a budget in proportion to G_i / sqrt(p_i + alpha / p_i^(beta - 1)); 0 if G or p is 0.

    With alpha = 0 the shares minimise sum_i G_i^2 / (n_i p_i), the variance of a sum of means over accepted rollouts,
    whose minimum is (sum_i G_i / sqrt(p_i))^2 / n. alpha > 0 lowers the shares of tasks that are rarely accepted. All
    shares are 0 if no task has both G > 0 and p > 0. Source: arXiv:2505.02391; for alpha = 0, J. Neyman, 1934.
    """
    norm, rate = norm.double(), rate.double()
    known = (norm > 0) & (rate > 0)
    p = torch.where(known, rate, 1)
    share = torch.where(known, norm / (p + alpha / p ** (beta - 1)).sqrt(), 0)
    return share / share.sum() if known.any() else share


def apportioned(share: Float[Tensor, "M"], total: int) -> Int[Tensor, "M"]:
    """Splits `total` into whole numbers nearest to share * total (shares of sum 1).

    The products are rounded; the entries with the largest rounding error are then corrected by one each until the sum
    is `total`. A share of 0 stays 0.
    """
    exact = share.double() * total
    counts = exact.round().long()
    missing = total - int(counts.sum())
    if missing:
        wronged = torch.where(share > 0, (exact - counts) * (1 if missing > 0 else -1), -torch.inf)
        counts[wronged.argsort(descending=True, stable=True)[: abs(missing)]] += 1 if missing > 0 else -1
    return counts
