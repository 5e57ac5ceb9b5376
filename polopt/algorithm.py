"""One full sentence: which experience, what it was worth, who earned it, how far to move."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from polopt.credit import Credit, Relative
from polopt.experience import Experience
from polopt.objectives import Objective, Surrogate
from polopt.part import Part
from polopt.rewards import Outcome, Reward
from polopt.sampling import Rollouts, Sampling


class Algorithm(Part):
    """sampling -> reward -> credit -> objective.

    `algorithm.but(credit=..., **{"objective.trust.high": 0.28})` is a changed copy, and
    `polopt.part.diff(a, b)` says what differs.
    """

    sampling: Sampling = Rollouts()
    reward: Reward = Outcome()
    credit: Credit = Relative()
    objective: Objective = Surrogate()

    def judge(self, experience: Experience) -> Experience:
        """The batch with its shaped `reward` and its `advantage`, computed on the whole of it."""
        with torch.no_grad():
            experience = experience.replace(reward=self.reward(experience))
            return experience.replace(advantage=self.credit(experience))


def add_metrics(parts: Iterable[dict[str, torch.Tensor]]) -> dict[str, float]:
    """The metrics of a batch from those of its micro-batches, which are shares of the whole: their sum."""
    total: dict[str, float] = {}
    for metrics in parts:
        for name, value in metrics.items():
            total[name] = total.get(name, 0.0) + float(value)
    return total
