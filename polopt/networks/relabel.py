"""Columns of a minibatch that are computed by the networks as they are now."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Generator, Tensor

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.part import Part
from polopt.sampling.policy_inputs import PolicyInput


class Relabel(Part):
    """`relabel(experience, evaluation, generator) -> Experience`: the minibatch with columns that networks give it, as
    their own reward, before they and the policy learn from it. Nothing has a gradient."""

    def forward(self, experience: Experience, evaluation: Evaluation, generator: Generator) -> Experience:
        raise NotImplementedError

    def check_log(self, log: Mapping[str, Tensor]) -> None:
        """Raises ValueError where a log's transitions, columns [N, ...], lack what the part learns from."""

    def evaluation_input(self) -> PolicyInput | None:
        """Returns what the policy reads in evaluations in place of what it reads in training; None for the same."""
        return None
