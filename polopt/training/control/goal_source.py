"""A source of transitions of goal-conditioned environments, whose goals can be replaced in hindsight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from polopt.errors import RunError
from polopt.experience import Experience
from polopt.policies.network import NetworkPolicy
from polopt.sampling import transition_rows
from polopt.sampling.hindsight import GoalStrategy, goal_places
from polopt.training.control.replay_source import ReplaySource
from polopt.training.control.transition_store import TransitionStore

# (achieved [N, G], desired [N, G], N dictionaries) -> rewards [N].
ComputeReward = Callable[[Any, Any, Any], Any]
MARKS = {"episode": ((), torch.int64), "step": ((), torch.int64)}


class EpisodeIndex:
    """The numbers of stored transitions, episode by episode, of those that have ended.

    Transition `numbers[i]` belongs to the episode whose transitions are numbers[begins[i]:ends[i]].
    """

    def __init__(self) -> None:
        self.count, self.head = 0, 0
        self.numbers, self.begins, self.ends = (torch.zeros(0, dtype=torch.int64) for _ in range(3))
        self._open: dict[int, list[Tensor]] = {}

    @classmethod
    def of(cls, marks: TransitionStore) -> EpisodeIndex:
        """Returns the index of all stored transitions, as if every episode had ended."""
        made = cls()
        numbers = torch.arange(marks.written - len(marks), marks.written)
        columns = {name: column[numbers % marks.size] for name, column in marks.columns.items()}
        order = torch.from_numpy(np.lexsort((numbers.numpy(), columns["episode"].numpy())))
        _, lengths = columns["episode"][order].unique_consecutive(return_counts=True)
        for part in order.split(lengths.tolist()):
            if columns["step"][part[0]] == 0:
                made._append(numbers[part])
        return made

    def add(self, episode: Tensor, number: Tensor, over: Tensor) -> None:
        """Adds decisions in their order, [M] each. over: whether the episode ends with it."""
        for one in episode.unique().tolist():
            own = episode == one
            self._open.setdefault(one, []).append(number[own])
            if over[own].any():
                self._append(torch.cat(self._open.pop(one)))

    def _append(self, numbers: Tensor) -> None:
        begin, count = self.count, len(numbers)
        self.count += count
        if self.count > len(self.numbers):
            for name in ("numbers", "begins", "ends"):
                old = getattr(self, name)
                grown = old.new_zeros(max(1024, 2 * self.count))
                grown[: len(old)] = old
                setattr(self, name, grown)
        place = slice(begin, self.count)
        self.numbers[place], self.begins[place], self.ends[place] = numbers, begin, self.count

    def has_any(self, oldest: int) -> bool:
        """Forgets episodes with a number below `oldest`. Tests whether a whole one is left."""
        while self.head < self.count and self.numbers[self.head] < oldest:
            self.head = int(self.ends[self.head])
        if self.head > 1_000_000 and 2 * self.head > self.count:
            for name in ("numbers", "begins", "ends"):
                kept = getattr(self, name)[self.head : self.count].clone()
                setattr(self, name, kept if name == "numbers" else kept - self.head)
            self.count, self.head = self.count - self.head, 0
        return self.head < self.count

    def draw(self, rows: int, strategy: GoalStrategy, oldest: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draws transitions of whole episodes uniformly, and a decision with an achieved goal for each: numbers [N]."""
        place = torch.zeros(0, dtype=torch.int64)
        while len(place) < rows:
            more = torch.randint(self.head, self.count, (rows - len(place),), generator=generator)
            place = torch.cat([place, more[self.numbers[self.begins[more]] >= oldest]])
        goal = goal_places(strategy, place, self.ends[place], self.begins[place], generator)
        return self.numbers[place], self.numbers[goal]


class GoalReplaySource(ReplaySource):
    """A `ReplaySource` that also marks each stored transition by its episode and its step in it.

    goals: numbers in a goal, G. compute_reward: the environment's, if it has one.

    Since all copies are reset at a checkpoint, the episodes that it cuts off count as ended there.
    """

    def __init__(self, *arguments: Any, goals: int, compute_reward: ComputeReward | None, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.goals, self._compute = goals, compute_reward
        self._marks: TransitionStore | None = None
        self._index = EpisodeIndex()
        self._next = 0  # number of the next episode
        self._episode = self._step_number = torch.zeros(0, dtype=torch.int64)
        self._rows: dict[str, Tensor] = {}

    def fragments(
        self, steps: int, *, greedy: bool = False, actor: NetworkPolicy | None = None, sequence: int = 1
    ) -> Experience:
        """See `StepSource.fragments`."""
        if self._seen is None:
            self._begin(torch.ones(self.rows, dtype=torch.bool))
        played = super().fragments(steps, greedy=greedy, actor=actor, sequence=sequence)
        mask, over = played.mask.cpu(), (played.terminated | played.truncated).cpu()
        marks = {name: torch.zeros_like(mask, dtype=torch.int64) for name in MARKS}
        for t in range(steps):
            marks["episode"][:, t], marks["step"][:, t] = self._episode, self._step_number
            self._step_number = self._step_number + mask[:, t]
            self._begin(over[:, t])
        self._rows = {name: column[mask] for name, column in (marks | {"over": over}).items()}
        return played

    def _begin(self, copies: Tensor) -> None:
        """Gives copies [N] a new episode."""
        if len(self._episode) != self.rows:
            self._episode = self._step_number = torch.zeros(self.rows, dtype=torch.int64)
        self._episode = torch.where(copies, self._next + copies.cumsum(0) - 1, self._episode)
        self._step_number = self._step_number.masked_fill(copies, 0)
        self._next += int(copies.sum())

    def _play(self, actor: Any, steps: int, capacity: int, sequence: int = 1) -> TransitionStore:
        before = self._written
        store = super()._play(actor, steps, capacity)
        if self._marks is None:
            self._marks = TransitionStore(self.folder / "episodes", MARKS, capacity, store.size - capacity)
            if before:
                self._marks.go_back(before)
            self._index = EpisodeIndex.of(self._marks)
        self._marks.add(self._rows)
        self._index.add(self._rows["episode"], torch.arange(before, self._written), self._rows["over"])
        return store

    def goal_transitions(
        self,
        rows: int,
        *,
        strategy: GoalStrategy,
        steps: int,
        start: int,
        capacity: int,
        noise: float,
        epsilon: float = 0.0,
    ) -> Experience:
        """See `sampling.source_protocols.GoalTransitionSource`."""
        self._epsilon = epsilon
        while self._written < start:
            self._play_random(steps, capacity)
        store = self._play(self._explorer(noise, epsilon), steps, capacity)
        while not self._index.has_any(store.written - len(store)):
            if store.written >= capacity:
                raise RunError(
                    f"no episode has ended whole within the {capacity} transitions that are stored, and goals are "
                    "those of ended ones; set the environment's max_episode_steps, or a larger capacity"
                )
            store = self._play_random(steps, capacity)
        numbers, later = self._index.draw(rows, strategy, store.written - len(store), self.generator)
        drawn = {name: column[numbers % store.size] for name, column in store.columns.items() if name != "following"}
        reached = store.columns["next_observation"][later % store.size]
        goal = reached[:, None, -2 * self.goals : -self.goals]
        batch = transition_rows(drawn, self.policy.head.support)
        return batch.replace(extras={**batch.extras, "achieved_later": goal}).to(self.policy.device)

    def goal_rewards(self, achieved: Tensor, desired: Tensor) -> Tensor:
        """See `sampling.source_protocols.GoalTransitionSource`."""
        assert self._compute is not None  # refused at the door
        found = self._compute(achieved.cpu().numpy(), desired.cpu().numpy(), [{} for _ in range(len(achieved))])
        return torch.as_tensor(np.asarray(found, np.float32)).reshape(len(achieved))

    def state(self) -> dict[str, int]:
        """Returns the position; the episodes that are being played end here."""
        found = {**super().state(), "episodes": self._next}
        if self._marks is not None:
            self._index = EpisodeIndex.of(self._marks)
        return found

    def load(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned."""
        super().load(state)
        self._next, self._marks = state["episodes"], None
