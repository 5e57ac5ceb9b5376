"""Policies that act open loop: several actions in turn after one look at the state."""

from __future__ import annotations

from typing import Any

import torch
from torch import Generator, Tensor

from polopt.policies.head import Action


class OpenLoop:
    """The plans of N copies: `length` actions each, taken in turn after one look at the state.

    A copy looks again when its plan is at an end, and when an episode begins (`drop`).
    """

    def __init__(self, copies: int, length: int) -> None:
        self.length = length
        self._place = torch.full((copies,), length)
        self._plan: Action | None = None

    def act(self, policy: Any, seen: Tensor, generator: Generator, *, greedy: bool = False) -> Action:
        """Returns the next action of every copy, by a policy with `propose_sequence`. seen: [N, D]."""
        looks = self._place >= self.length
        if looks.any():
            with torch.no_grad():
                made = policy.propose_sequence(seen[looks.to(seen.device)], self.length, generator, greedy=greedy)
            if self._plan is None:
                self._plan = Action(*(x.new_zeros(len(looks), *x.shape[1:]) for x in made))
            for kept, new in zip(self._plan, made, strict=True):
                kept[looks.to(kept.device)] = new
            self._place[looks] = 0
        assert self._plan is not None
        rows = torch.arange(len(looks)), self._place.clone()
        self._place += 1
        return Action(*(x[rows] for x in self._plan))

    def drop(self, rows: Tensor) -> None:
        """Drops the plans of copies, [N] bool."""
        self._place[rows.to(self._place.device)] = self.length
