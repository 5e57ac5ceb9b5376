"""A source of single transitions: environments that are stepped, and the store of what they showed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from gymnasium.vector import VectorEnv
from torch import Generator, Tensor

from polopt.experience import Experience
from polopt.policies.network import Action, NetworkPolicy
from polopt.training.control.source import StepSource
from polopt.training.control.transition_store import TransitionStore

COLUMNS = ("observation", "next_observation", "action", "reward", "terminated", "truncated")


class UniformPolicy:
    """Uniformly random actions of another policy's space."""

    def __init__(self, policy: NetworkPolicy) -> None:
        self.device, self._space = policy.device, policy.space

    def act(self, observation: Tensor, generator: Generator, *, greedy: bool = False) -> Action:
        """Samples an action for each observation, [N, D]."""
        count, space = len(observation), self._space
        if space.actions is not None:
            action = torch.randint(space.actions, (count,), generator=generator)
            return Action(action, torch.full((count,), -math.log(space.actions)))
        assert space.dimensions is not None
        action = 2 * torch.rand(count, space.dimensions, generator=generator) - 1
        return Action(action, torch.full((count,), -space.dimensions * math.log(2)))


class ReplaySource(StepSource):
    """A source of fragments, as `StepSource`, and of transitions that are drawn from a store of all of them.

    folder: of the store; made when transitions are first drawn.
    checkpoint_every: batches between checkpoints, at most.
    """

    def __init__(
        self,
        environments: VectorEnv,
        policy: NetworkPolicy,
        *,
        seed: int,
        generator: Generator,
        folder: Path,
        checkpoint_every: int,
    ) -> None:
        super().__init__(environments, policy, seed=seed, generator=generator)
        self.folder, self.checkpoint_every = folder, checkpoint_every
        self._store: TransitionStore | None = None
        self._written = 0
        self._ended: list[tuple[float, float, bool]] = []

    def fragments(self, steps: int, *, greedy: bool = False) -> Experience:
        """See `StepSource.fragments`."""
        played = super().fragments(steps, greedy=greedy)
        over = played.terminated | played.truncated
        columns = (played.extras["episode_return"], played.extras["episode_length"], played.truncated)
        self._ended += zip(*(column[over].tolist() for column in columns), strict=True)
        return played

    def ended(self) -> list[tuple[float, float, bool]]:
        """Returns return, length and whether it was truncated, of each episode that ended since the last call."""
        found, self._ended = self._ended, []
        return found

    def transitions(self, rows: int, *, steps: int, start: int, capacity: int) -> Experience:
        """See `sampling.source_protocols.TransitionSource`."""
        while self._written < start:
            self._play(max(steps, 1), capacity, at_random=True)
        if steps:
            self._play(steps, capacity)
        if self._store is None:
            self._store = self._opened(capacity, steps, self.fragments(1))
        drawn = self._store.draw(rows, self.generator)
        reward, terminated, truncated = (drawn[name][:, None] for name in ("reward", "terminated", "truncated"))
        observation = torch.stack([drawn["observation"], drawn["next_observation"]], 1)
        extras = {"observation": observation, "action": drawn["action"][:, None]}
        mask = torch.ones(rows, 1, dtype=torch.bool)
        return Experience(
            mask=mask,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            group=torch.arange(rows),
            extras=extras,
        ).to(self.policy.device)

    def _play(self, steps: int, capacity: int, *, at_random: bool = False) -> None:
        own = self.policy
        self.policy = UniformPolicy(own) if at_random else own  # type: ignore[assignment]
        try:
            played = self.fragments(steps).to("cpu")
        finally:
            self.policy = own
        if self._store is None:
            self._store = self._opened(capacity, steps, played)
        rows = _flat(played)
        self._store.add(rows)
        self._written = self._store.written

    def _opened(self, capacity: int, steps: int, played: Experience) -> TransitionStore:
        like = _flat(played)
        columns = {name: (tuple(like[name].shape[1:]), like[name].dtype) for name in COLUMNS}
        spare = 3 * self.checkpoint_every * max(steps, 1) * self.rows
        store = TransitionStore(self.folder, columns, capacity, spare)
        if self._written:
            store.go_back(self._written)
        return store

    def state(self) -> dict[str, int]:
        """Returns the position: the fragments so far, and the transitions that were written."""
        return {**super().state(), "transitions": self._written}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned."""
        super().load(state)
        self._written, self._store = state["transitions"], None


def _flat(played: Experience) -> dict[str, Tensor]:
    """Returns the decisions of fragments, one a row; steps that reset a copy are left out."""
    mask, extras = played.mask, played.extras
    return {
        "observation": extras["observation"][:, :-1][mask],
        "next_observation": extras["observation"][:, 1:][mask],
        "action": extras["action"][mask],
        "reward": played.reward[mask],
        "terminated": played.terminated[mask],
        "truncated": played.truncated[mask],
    }
