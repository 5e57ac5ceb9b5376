"""A running normaliser of observations."""

from __future__ import annotations

import torch
from torch import Tensor, nn

# Normalised observations are kept within so many standard deviations.
LIMIT = 10.0


class ObservationNormaliser(nn.Module):
    """Subtracts the mean of all observations seen and divides by their standard deviation, in each dimension.

    The statistics of what was seen, `count` [], `mean` [D] and `squares` [D] (sum of squared deviations), are float64
    and merge batches exactly (Chan, Golub and LeVeque 1983). `observe` changes them and nothing else; `advance` makes
    them those that observations are normalised with. So a policy does not change while a batch is sampled and learned
    from. Until the first `advance` after an `observe`, observations stay as they are.
    """

    count: Tensor
    mean: Tensor
    squares: Tensor
    shift: Tensor
    scale: Tensor

    def __init__(self, observations: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        for name in ("mean", "squares", "shift"):
            self.register_buffer(name, torch.zeros(observations, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(observations, dtype=torch.float64))

    def forward(self, observation: Tensor) -> Tensor:
        """Normalises observations [..., D]."""
        dtype = observation.dtype
        return ((observation - self.shift.to(dtype)) / self.scale.to(dtype)).clamp(-LIMIT, LIMIT)

    @torch.no_grad()
    def observe(self, observation: Tensor) -> None:
        """Adds observations [M, D] to the statistics."""
        seen = observation.to(self.mean)
        if not len(seen):
            return
        mean = seen.mean(0)
        total, apart = self.count + len(seen), mean - self.mean
        self.squares += (seen - mean).square().sum(0) + apart.square() * self.count * len(seen) / total
        self.mean += apart * len(seen) / total
        self.count.copy_(total)

    @torch.no_grad()
    def advance(self) -> None:
        """Normalises with the statistics so far from here on."""
        if self.count > 0:
            self.shift.copy_(self.mean)
            self.scale.copy_((self.squares / self.count + 1e-8).sqrt())
