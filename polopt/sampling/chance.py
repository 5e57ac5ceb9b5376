"""Row selection under noisy rewards: by rank in the group, or by random draws."""

from __future__ import annotations

import random
from typing import Literal

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.sampling.parts import Select

# Added to every weight, as in verl: a batch whose weights are all 0 is resampled uniformly.
LEAST = 1e-8


class RandomSelect(Select):
    """A selection by random numbers that `seed` and the number of batches so far determine.

    The number of batches is a buffer, so that a resumed run repeats its draws. It grows in training mode only.
    """

    seed: int = 0

    def setup(self) -> None:
        self.register_buffer("drawn", torch.zeros((), dtype=torch.int64))

    def uniform(self, experience: Experience) -> Tensor:
        """Returns one number in [0, 1) for each row of a batch, [B], float64."""
        drawn = self.get_buffer("drawn")
        # A text as the seed, so that seed 0 on its second batch differs from seed 1 on its first.
        seed = random.Random(f"{self.seed}/{int(drawn)}").getrandbits(63)
        if self.training:
            drawn.add_(1)
        numbers = torch.rand(len(experience), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        return numbers.to(experience.device)


class ResampledRows(RandomSelect):
    """Resamples the rows with replacement, as many as there were, each with a probability in proportion to

        "power": |outcome|^power;    "extremes": 1 at the batch's highest and lowest outcome, else 0;
        "best": 0.4 at the batch's highest outcome, 0.1 elsewhere;

    plus 1e-8. A row that is drawn several times counts as often. Source: the formulas of verl's PF-PPO, which takes
    best and worst of the whole batch, not of each prompt.
    """

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
