"""Rollouts with Monte-Carlo values at intermediate states."""

from __future__ import annotations

from torch import Tensor

from polopt.experience import Experience
from polopt.sampling.parts import Select


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
