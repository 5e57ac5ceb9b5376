"""D3S: GRPO on a subset of rollouts and tokens of the largest gradient signal, with shares that grow over training."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.objectives import TokenMean
from polopt.part_names import name_of
from polopt.sampling.parts import Select
from polopt.schedules import Schedule, now


@method(
    paper=Paper(
        title="Learning More with Less: A Dynamic Dual-Level Down-Sampling Framework for Efficient Policy Optimization",
        authors="Wang, Chao and Yang, Tao and others",
        year=2025,
        arxiv="2509.22115",
    ),
    changes="GRPO on the rows whose advantages vary most and their tokens of highest |A| H; a growing share of both.",
    room="sampling",
    tier="reading",
)
def d3s(
    *,
    group: int = 8,
    clip: float = 0.2,
    rows: tuple[float, float] = (0.25, 0.5),
    tokens: tuple[float, float] = (0.2, 0.6),
    steps: int = 100,
    within: str = "batch",
) -> Algorithm:
    """The rows and the tokens of the largest signal stay in the loss:

        S = argmax_{|S| = N} Var({A_i : i in S}),    L = mean_{i, t in T} L_it

    with GRPO's A_i and L_it, S a set of rows across all groups of the batch, and T the share K of the tokens of S that
    has the largest |A_i| H_it, H the sampler's entropy.

    N (as a share of the rows) and K go linearly from the first to the second number of `rows` and `tokens` in `steps`
    batches. within="group" chooses in each group for itself: D3S-I. The paper's end points are not known to us; these
    learn from 16 % of GRPO's tokens over a run ("under 20 %"). Baselines are not computed again for the kept rows.
    Where all advantages are equal the paper takes a random subset, here the first rows; neither has a gradient.
    """
    share = [Schedule(knots=[(0, first), (steps, last)]) for first, last in (rows, tokens)]
    select = [HighestVariance(share=share[0], within=within), TopDecisions(share=share[1])]  # type: ignore[arg-type]
    return grpo(group=group, clip=clip, kl=0).but({"select": select, "objective.aggregate": TokenMean()})


def most_varied(x: Float[Tensor, "n"], keep: int) -> Bool[Tensor, "n"]:
    """Returns the mask of the `keep` of n numbers with the largest variance; exact, in O(n log n).

    The sum of squares about the mean is convex in each number, so some best subset is the i smallest and the keep - i
    largest numbers: every i is tried, with running sums over the sorted numbers. The choice among several best subsets
    does not depend on the order of the numbers, except among equal numbers.
    """
    chosen = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    if not keep:
        return chosen
    order = x.argsort(stable=True)
    numbers = x[order].double()
    numbers = numbers - numbers.mean()
    nothing = numbers.new_zeros(1)
    sums, squares = torch.cat([nothing, numbers.cumsum(0)]), torch.cat([nothing, numbers.square().cumsum(0)])
    low = torch.arange(keep + 1, device=x.device)
    high = len(x) - keep + low
    total, square = (s[low] + s[-1] - s[high] for s in (sums, squares))
    i = int((square - total.square() / keep).argmax())
    chosen[order[:i]] = chosen[order[len(x) - keep + i :]] = True
    return chosen


class HighestVariance(Select):
    """Keeps the round(share n) of n rows, at least one, whose advantages have the largest variance.

    share: fraction of the rows, a number or a schedule.
    within: "batch" chooses among all rows, "group" in each group separately (two rows at least make sense there: one
        has no variance).

    A row's advantage is the mean over its decisions; rows without decisions are left out. Advantages are not centred
    again: the kept rows keep their baseline. Source: D3S, arXiv:2509.22115.
    """

    tags = frozenset({"filter=outcome"})

    share: float | Schedule = 0.5
    within: Literal["batch", "group"] = "batch"

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"advantage"} | ({"group"} if self.within == "group" else set()))

    def setup(self) -> None:
        _check_share(self, self.share)

    def forward(self, experience: Experience) -> Experience:
        advantage = ops.row_mean(experience.advantage, experience.mask)
        keep, share = torch.zeros(len(experience), dtype=torch.bool, device=experience.device), now(self.share)
        for rows in self._candidates(experience):
            keep[rows] = most_varied(advantage[rows], max(1, round(share * len(rows))) if len(rows) else 0)
        return experience[keep]

    def _candidates(self, experience: Experience) -> list[Tensor]:
        """Returns the rows with decisions, one tensor for each set that is chosen from."""
        decided = experience.mask.any(1)
        if self.within == "batch":
            return [decided.nonzero().flatten()]
        index, size = ops.group_index(experience.group)
        return [((index == g) & decided).nonzero().flatten() for g in range(len(size))]


class TopDecisions(Select):
    """Keeps the round(share n) of n decisions, at least one, with the largest |A_it| H_it, H the sampler's entropy.

    The others remain as context. Ties: the earlier decision. Source: D3S, arXiv:2509.22115.

    share: fraction of the decisions, a number or a schedule.
    within: "batch" ranks all decisions together, "row" each row's separately.
    """

    tags = frozenset({"filter=outcome"})

    share: float | Schedule = 0.2
    within: Literal["batch", "row"] = "batch"

    reads = frozenset({"advantage", "entropy"})

    def setup(self) -> None:
        _check_share(self, self.share)

    def forward(self, experience: Experience) -> Experience:
        score, mask = experience.advantage.abs() * experience.entropy, experience.mask
        if self.within == "batch":
            keep = ops.top_share(score.reshape(1, -1), mask.reshape(1, -1), now(self.share)).reshape(mask.shape)
        else:
            keep = ops.top_share(score, mask, now(self.share))
        return experience.restrict(keep)


def _check_share(part: Select, share: float | Schedule) -> None:
    values = [value for _, value in share.knots] if isinstance(share, Schedule) else [share]
    if not all(0 < value <= 1 for value in values):
        raise ValueError(f"{name_of(type(part))}: share must be in (0, 1], found {share}")
