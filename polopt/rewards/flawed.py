"""Penalties for right answers with wrong steps, and the reward of a process judge."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from polopt.experience import Experience
from polopt.features.base import RowMask
from polopt.features.masks import IsCorrect, SignalAbove
from polopt.rewards.parts import Reward


class FlawedPositive(Reward):
    """Reward -weight for rows that are right and yet flawed, 0 for all others.

    weight: with outcomes of +1 and -1, weight 1 lowers flawed positives to 0, and 2 lowers them to the reward of wrong
        rows.
    flawed: a check of the steps, computed for right rows alone; by default the world's signal "flawed". NaN, a missing
        result of the check, counts as not flawed.
    right: the rows that are right.

    Source: FAPO, arXiv:2510.22543.
    """

    weight: float = 1.0
    flawed: RowMask = SignalAbove(name="flawed")
    right: RowMask = IsCorrect()

    def setup(self) -> None:
        if self.weight < 0:
            raise ValueError(f"rewards.FlawedPositive: weight must be >= 0, found {self.weight}")

    def forward(self, experience: Experience) -> Tensor:
        experience.require(self.flawed.required_fields, by=self.flawed)  # also where no row is right yet
        punished = self.right(experience)
        if any(part.reads_batch for part in self.flawed.parts() if isinstance(part, RowMask)):
            punished = punished & self.flawed(experience)
        elif punished.any():
            punished = punished.masked_scatter(punished, self.flawed(experience[punished]))
        return torch.where(punished, -self.weight, 0.0).to(experience.outcome.dtype)


def step_verdict(found: Int[Tensor, "B"], first: Int[Tensor, "B"], steps: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Returns the reward of a process judge that names the first wrong step, with n = `steps` steps, counted from 0:
        1 for finding none where there is none;   1 - |found - first| / n for naming one where there is one;
        -1 for anything else.

    found: the judge's verdict, -1 for none; any other number outside 0 .. n - 1 stands for an unreadable verdict.
    first: the true first wrong step, -1 for none.

    Source: FAPO's GenRM, arXiv:2510.22543.
    """
    named, wrong = (found >= 0) & (found < steps), first >= 0
    near = 1 - (found - first).abs() / steps.clamp(min=1)
    agreed = torch.where(wrong, near, 1.0)
    return torch.where(torch.where(wrong, named, found == -1), agreed, -1.0)
