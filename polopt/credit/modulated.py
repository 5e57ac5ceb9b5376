"""Credit modulated by the policy's confidence: in a turn, in an answer, or over the answers to a prompt."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.credit.parts import Credit
from polopt.experience import Experience
from polopt.features.base import TokenFeature


class ModulatedAdvantage(Credit):
    """A'_it = times_it A_it + plus_it: another credit, scaled and shifted.

    times None is 1, plus None is 0. limit: |plus_it| is clipped to at most limit |times_it A_it|, so that at 1 it
    flips no advantage's sign and leaves an advantage of 0 unchanged.
    """

    credit: Credit
    times: TokenFeature | None = None
    plus: TokenFeature | None = None
    limit: float | None = None

    def setup(self) -> None:
        if self.limit is not None and self.limit < 0:
            raise ValueError(f"credit.ModulatedAdvantage: limit must be >= 0, found {self.limit}")

    def forward(self, experience: Experience) -> Tensor:
        advantage = self.credit(experience)
        if self.times is not None:
            advantage = advantage * self._read(self.times, experience, advantage)
        if self.plus is not None:
            bonus = self._read(self.plus, experience, advantage)
            if self.limit is not None:
                most = self.limit * advantage.abs()
                bonus = bonus.clamp(-most, most)
            advantage = advantage + bonus
        return advantage

    def _read(self, feature: TokenFeature, experience: Experience, advantage: Tensor) -> Tensor:
        return torch.where(experience.mask, feature(experience), 0).to(advantage.dtype)
