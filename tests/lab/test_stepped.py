"""Worlds that are stepped take the draws that a replay's sampling makes."""

from __future__ import annotations

import pytest
import torch
from torch import Generator, Tensor

from polopt.lab.stepped import SteppedWorld, learned_in
from polopt.methods.sac import sac


class Still(SteppedWorld):
    """A point that stays where it is."""

    observations, dimensions, horizon = 1, 1, 3

    def start(self, count: int, generator: Generator) -> Tensor:
        return torch.zeros(count, 1)

    def step(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return state, torch.ones(len(state)), torch.zeros(len(state), dtype=torch.bool)


def test_a_policy_learns_from_stored_transitions() -> None:
    made = sac(hidden=(4,), start=8)
    policy, networks = learned_in(Still(), made, head="squashed_gaussian", rounds=2, updates=3, batch=4, seed=0)
    assert networks.count == 6
    assert all(p.isfinite().all() for p in policy.parameters())


def test_transitions_of_several_steps_are_refused() -> None:
    made = sac(hidden=(4,), start=8).but({"sampling.gamma": 0.9, "sampling.n_steps": 2})
    with pytest.raises(ValueError, match="n_steps = 1"):
        learned_in(Still(), made, head="squashed_gaussian", rounds=1, updates=1, batch=4, seed=0)
