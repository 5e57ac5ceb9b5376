"""Selection of rows and tokens, of what was sampled or of what is learned."""

from __future__ import annotations

import random
from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Experience
from polopt.sampling.parts import Select
from polopt.setting_types import Unbounded


class MixedGroups(Select):
    """Keeps the groups whose outcomes differ; a group of equal outcomes has no relative advantage.

    The filter compares `outcome`, the environment's result, not the shaped reward, whose small differences (lengths)
    would keep every group. Source: dynamic sampling in DAPO, arXiv:2503.14476.
    """

    tags = frozenset({"filter=outcome"})
    reads = frozenset({"outcome", "group"})

    def forward(self, experience: Experience) -> Experience:
        index, count = ops.group_index(experience.group)
        low = experience.outcome.new_full((len(count),), torch.inf)
        high = low.neg().scatter_reduce(0, index, experience.outcome, "amax")
        low = low.scatter_reduce(0, index, experience.outcome, "amin")
        return experience[(high > low)[index]]


class TopK(Select):
    """Keeps the `count` rows of each group with the highest outcome (ties: the earlier row), None for all, among those
    of at least `threshold`.

    With one row per prompt this is RAFT's best-of-n, arXiv:2304.06767.
    """

    tags = frozenset({"filter=outcome"})

    count: int | None = 1
    threshold: Unbounded = -float("inf")

    reads = frozenset({"outcome", "group"})

    def setup(self) -> None:
        if self.count is not None and self.count < 1:
            raise ValueError(f"sampling.TopK: count must be >= 1, found {self.count}")

    def forward(self, experience: Experience) -> Experience:
        keep = experience.outcome >= self.threshold
        if self.count is not None:
            keep = keep & (ops.group_place(experience.outcome, experience.group) < self.count)
        return experience[keep]


class UniqueAnswers(Select):
    """Keeps the first row of each group with a given text, `extras["answer"]`. Source: RFT, arXiv:2308.01825."""

    reads = frozenset({"group", "extras.answer"})

    def forward(self, experience: Experience) -> Experience:
        seen: set[tuple[int, str]] = set()
        rows = []
        for row, key in enumerate(zip(experience.group.tolist(), experience.extras["answer"], strict=True)):
            if key not in seen:
                seen.add(key)
                rows.append(row)
        return experience[rows]


class MatchedRows(Select):
    """Leaves out the rows that hold an answer to another prompt, `extras.mismatched`, which statistics of the batch
    have been computed from."""

    reads = frozenset({"extras.mismatched"})

    def forward(self, experience: Experience) -> Experience:
        return experience[~experience.extras["mismatched"]]


class NonZeroAdvantage(Select):
    """Keeps the rows with a nonzero advantage at some decision.

    If every decision has the same weight, rows without advantage dilute the others. The part is for an algorithm's
    `select`. An advantage counts as 0 if its size is within rounding of a return that equals its baseline: in a group
    with returns R and advantages A, |A| <= 16 eps max|R| max|A| / (max R - min R), with eps of the returns' precision.
    The difference of equal numbers may be 0 or 1e-16, depending on the order of the rows.
    """

    tags = frozenset({"filter=outcome"})
    reads = frozenset({"advantage", "reward", "group"})

    def forward(self, experience: Experience) -> Experience:
        returns, group = experience.returns(), experience.group
        row = ops.row_size(experience.advantage, experience.mask)
        most = lambda x: -ops.group_least(-x, group)  # noqa: E731
        spread = most(returns) - ops.group_least(returns, group)
        unit = torch.where(spread > 0, most(row) / torch.where(spread > 0, spread, 1), 0)
        return experience[row > 16 * torch.finfo(returns.dtype).eps * most(returns.abs()) * unit]


class ExtremeRows(Select):
    """Keeps of each group the row with the highest and the row with the lowest advantage at its first decision (ties:
    the earlier row), and nothing of a group whose advantages are equal.

    The part is for an algorithm's `select`: the best and the worst of several answers become a pair. Source: the pairs
    of SPPO, arXiv:2405.00675.
    """

    tags = frozenset({"filter=outcome"})
    reads = frozenset({"advantage", "group"})

    def forward(self, experience: Experience) -> Experience:
        first = experience.mask.to(torch.uint8).argmax(1, keepdim=True)
        value = torch.where(experience.mask, experience.advantage, 0).gather(1, first)[:, 0]
        best, worst = (ops.group_place(signed, experience.group) == 0 for signed in (value, -value))
        differ = ops.group_least(value, experience.group) < -ops.group_least(-value, experience.group)
        return experience[(best | worst) & differ]


# Added to every weight, as in verl: a batch whose weights are all 0 is resampled uniformly.
LEAST = 1e-8


class RandomSelect(Select):
    """A selection by random numbers that `seed` and the number of batches so far determine.

    The number of batches is a buffer, so that a resumed run repeats its draws. It grows in training mode only.
    """

    seed: int = 0

    def setup(self) -> None:
        self.register_buffer("drawn", torch.zeros((), dtype=torch.int64))

    def generator(self) -> torch.Generator:
        """Returns the random generator of the next batch."""
        drawn = self.get_buffer("drawn")
        # A text as the seed, so that seed 0 on its second batch differs from seed 1 on its first.
        seed = random.Random(f"{self.seed}/{int(drawn)}").getrandbits(63)
        if self.training:
            drawn.add_(1)
        return torch.Generator().manual_seed(seed)

    def uniform(self, experience: Experience) -> Tensor:
        """Returns one number in [0, 1) for each row of a batch, [B], float64."""
        numbers = torch.rand(len(experience), dtype=torch.float64, generator=self.generator())
        return numbers.to(experience.device)


class ResampledRows(RandomSelect):
    """Resamples the rows with replacement, as many as there were, each with a probability in proportion to

        "power": |outcome|^power;    "extremes": 1 at the batch's highest and lowest outcome, else 0;
        "best": 0.4 at the batch's highest outcome, 0.1 elsewhere;

    plus 1e-8. A row that is drawn several times counts as often. Source: the formulas of verl's PF-PPO, which takes
    best and worst of the whole batch, not of each prompt.
    """

    tags = frozenset({"filter=outcome"})

    weights: Literal["power", "extremes", "best"] = "power"
    power: float = 2.0

    reads = frozenset({"outcome", "group"})

    def forward(self, experience: Experience) -> Experience:
        outcome = experience.outcome.double()
        if not len(outcome):
            return experience
        # Random numbers belong to places in the order of outcomes, so that the order of the rows does not matter.
        order = outcome.argsort(stable=True)
        order = order[experience.group[order].argsort(stable=True)]
        mass = (self._weights(outcome) + LEAST)[order].cumsum(0)
        drawn = torch.searchsorted(mass, self.uniform(experience) * mass[-1], right=True)
        return experience[order[drawn.clamp(max=len(order) - 1)].sort().values]

    def _weights(self, outcome: Tensor) -> Tensor:
        best = outcome == outcome.max()
        if self.weights == "power":
            return outcome.abs() ** self.power
        if self.weights == "extremes":
            return (best | (outcome == outcome.min())).double()
        return torch.where(best, 0.4, 0.1).double()


def in_doubt(experience: Experience, threshold: float) -> Tensor:
    """Returns the mask [B, T] of decisions whose sampling probability was below the threshold."""
    return experience.mask & (experience.rollout_logp.exp() < threshold)


class UncertainTokens(Select):
    """Keeps the decisions whose sampling probability was below `threshold`; the others remain as context.

    A nearly certain decision has hardly any alternative to learn about. Source: the probability mask of SPO,
    arXiv:2505.23564.
    """

    threshold: float = 0.9

    reads = frozenset({"rollout_logp"})

    def forward(self, experience: Experience) -> Experience:
        return experience.restrict(in_doubt(experience, self.threshold))
