"""A source of single transitions: environments that are stepped, and the store of what they showed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from gymnasium.vector import VectorEnv
from torch import Generator, Tensor

from polopt.experience import Experience
from polopt.policies.explorers import EpsilonGreedyPolicy, NoisyPolicy, UniformPolicy
from polopt.policies.network import NetworkPolicy
from polopt.sampling import PolicyInput, WeightedLog, spanning, transition_rows
from polopt.step_source import PRIVILEGED, StepSource
from polopt.training.control.transition_store import TransitionStore


class ReplaySource(StepSource):
    """A source of fragments, as `StepSource`, and of transitions that are drawn from a store of all of them.

    folder: of the store; made when transitions are first drawn.
    logged: transitions of a log, as `control.logged.load_transitions` returns them, if there is one.
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
        training: bool = False,
        logged: Mapping[str, Tensor] | None = None,
        policy_input: PolicyInput | None = None,
    ) -> None:
        super().__init__(
            environments, policy, seed=seed, generator=generator, training=training, policy_input=policy_input
        )
        self.folder, self.checkpoint_every, self.logged = folder, checkpoint_every, logged
        space: Any = environments.single_action_space
        bounds = [] if policy.space.dimensions is None else [space.low, space.high]
        self._low, self._high = (torch.as_tensor(b.reshape(-1)) for b in bounds) if bounds else (torch.zeros(0),) * 2
        self._store: TransitionStore | None = None
        self._written = 0
        # The number of the row that holds each copy's latest decision, -1 where its episode is over or was cut.
        self._latest = torch.full((self.rows,), -1)
        self._epsilon = 0.0
        self._weighted: WeightedLog | None = None
        self._ended: list[tuple[float, float, bool]] = []

    def fragments(
        self, steps: int, *, greedy: bool = False, actor: NetworkPolicy | None = None, sequence: int = 1
    ) -> Experience:
        """See `StepSource.fragments`."""
        played = super().fragments(steps, greedy=greedy, actor=actor, sequence=sequence)
        over = played.terminated | played.truncated
        columns = (played.extras["episode_return"], played.extras["episode_length"], played.truncated)
        self._ended += zip(*(column[over].tolist() for column in columns), strict=True)
        return played

    def ended(self) -> list[tuple[float, float, bool]]:
        """Returns return, length and whether it was truncated, of each episode that ended since the last call."""
        found, self._ended = self._ended, []
        return found

    def exploration(self) -> dict[str, float]:
        """Returns the metrics of the exploration in the last fragment, and of the log's weights."""
        weighted = {} if self._weighted is None else self._weighted.metrics
        given = {} if self.policy_input is None or self._seen is None else self.policy_input.metrics(self._given)
        return weighted | given | ({"epsilon": self._epsilon} if self._epsilon else {})

    def transitions(
        self,
        rows: int,
        *,
        steps: int,
        start: int,
        capacity: int,
        noise: float,
        epsilon: float = 0.0,
        n_steps: int = 1,
        gamma: float | None = None,
        sequence: int = 1,
    ) -> Experience:
        """See `sampling.source_protocols.TransitionSource`."""
        self._epsilon = epsilon
        while self._written < start:
            self._play_random(steps, capacity)
        store = self._play(self._explorer(noise, epsilon), steps, capacity, sequence)
        drawn = store.draw(rows, self.generator, n_steps=n_steps, gamma=gamma)
        return transition_rows(drawn, self.policy.head.support).to(self.policy.device)

    def _play_random(self, steps: int, capacity: int) -> TransitionStore:
        return self._play(UniformPolicy(self.policy, self._low, self._high), steps, capacity)

    def _explorer(self, noise: float, epsilon: float) -> Any:
        if epsilon:
            return EpsilonGreedyPolicy(self.policy, epsilon)
        return NoisyPolicy(self.policy, noise, self._low, self._high) if noise else self.policy

    def logged_transitions(
        self, rows: int, *, n_steps: int = 1, gamma: float | None = None, weights: Any = None
    ) -> Experience:
        """See `sampling.source_protocols.LoggedTransitionSource`."""
        assert self.logged is not None  # refused at the door
        if weights is None:
            place = torch.randint(len(self.logged["reward"]), (rows,), generator=self.generator)
        else:
            self._weighted = self._weighted or WeightedLog(self.logged, weights)
            place = self._weighted.draw(rows, self.generator)
        drawn = spanning(self.logged, place, n_steps, gamma)
        return transition_rows(drawn, self.policy.head.support).to(self.policy.device)

    def _play(self, actor: Any, steps: int, capacity: int, sequence: int = 1) -> TransitionStore:
        own, self.policy = self.policy, actor
        try:
            played = self.fragments(steps, sequence=sequence).to("cpu")
        finally:
            self.policy = own
        if self._store is None:
            self._store = self._opened(capacity, steps, played)
        first = self._store.written + played.mask.sum(1).cumsum(0) - played.mask.sum(1)
        self._store.add(self._flat(played))
        self._written = self._store.written
        self._follow(self._store, played, first)
        return self._store

    def _follow(self, store: TransitionStore, played: Experience, first: Tensor) -> None:
        """Links each copy's first decision of a fragment, row number `first` [N], to the latest one before it."""
        count, columns = played.mask.sum(1), torch.arange(played.mask.shape[1])
        linked = (count > 0) & (self._latest >= 0)
        store.link(self._latest[linked], first[linked])
        last = torch.where(played.mask, columns, 0).amax(1, keepdim=True)
        ended = (played.terminated | played.truncated).gather(1, last)[:, 0]
        latest = torch.where(ended, -1, first + count - 1)
        self._latest = torch.where(count > 0, latest, self._latest)

    def _reset(self) -> None:
        super()._reset()
        self._latest = torch.full((self.rows,), -1)

    def _opened(self, capacity: int, steps: int, played: Experience) -> TransitionStore:
        like = self._flat(played)
        columns = {name: (tuple(value.shape[1:]), value.dtype) for name, value in like.items()}
        spare = 3 * self.checkpoint_every * steps * self.rows
        store = TransitionStore(self.folder, columns, capacity, spare)
        if self._written:
            store.go_back(self._written)
        return store

    def _flat(self, played: Experience) -> dict[str, Tensor]:
        """Returns the decisions of fragments, one a row; steps that reset a copy are left out. following: 1 where the
        next row is the next decision of the same episode, else 0."""
        mask, extras = played.mask, played.extras
        number = mask.nonzero()[:, 0]
        following = torch.zeros_like(number)
        following[:-1] = ((number[1:] == number[:-1]) & ~(played.terminated | played.truncated)[mask][:-1]).long()
        given = [] if self.policy_input is None else [self.policy_input.name]
        given += [name for name in (PRIVILEGED, f"final_{PRIVILEGED}") if name in extras]
        return {
            "observation": extras["observation"][:, :-1][mask],
            "next_observation": extras.get("final_observation", extras["observation"][:, 1:])[mask],
            "action": extras["action"][mask],
            "reward": played.reward[mask],
            "terminated": played.terminated[mask],
            "truncated": played.truncated[mask],
            "following": following,
            **{name: extras[name][mask] for name in given},
        }

    def state(self) -> dict[str, int]:
        """Returns the position: the fragments so far, and the transitions that were written."""
        return {**super().state(), "transitions": self._written}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned."""
        super().load(state)
        self._written, self._store = state["transitions"], None
