"""What a world is: tasks, and episodes played on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from polopt.errors import UserError

# The largest size of a reward. Batches are float32: the squares of a million of them still add up to a finite number.
LARGEST = 1e16


class Step(NamedTuple):
    """What the world answers to an action.

    observation: the text that the policy reads next; empty when the episode is over.
    reward: of this step alone.
    terminated: the episode ended. truncated: the world's patience ended. Two things, never one: after a
    truncation the future still had value.
    info: what a person may want to know about the step; no part of the observation. `solved`, where the
    world says it, tells whether the task is done; otherwise it is when its rewards add up to 1. `feedback`, where the
    world says it, is a text on what was wrong, for teachers to read. `answer`, where the world says it, is what it read
    as the answer in a longer text. `signals`: name -> number, what else is known of
    the answer, for parts that read it; see `signals_of`.
    """

    observation: str
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]

    @property
    def over(self) -> bool:
        return self.terminated or self.truncated


# The answer of an episode that was given up.
LOST = Step("", 0.0, terminated=False, truncated=True, info={"lost": True})


class Episode(Protocol):
    """One play of one task. A single answer is an episode that terminates after its first step."""

    def reset(self) -> str:
        """Start afresh; the first observation, which is the task's prompt."""

    def step(self, action: str) -> Step:
        """Play one action.

        Raises:
            EpisodeError: the episode is over, or has not begun.
        """

    def demonstrate(self) -> str | None:
        """The action a good player takes now, for supervised warm-up; None where the world knows none."""


@dataclasses.dataclass(frozen=True)
class Task:
    """One problem.

    id: stable between runs, unique among the tasks it comes with.
    kind: what sort of task it is; results are reported per kind.
    prompt: the first observation.
    solution: an answer that the world accepts, where one is known and a single answer is what it wants; it may show
        its working.
    row: whatever else the world knows of it.
    history: messages before the prompt, each with `role` and `content`: a system prompt, earlier turns.
    answer: the solution without its working, where the world knows it apart.
    rejected: an answer that is worse than the solution, where the two are known as a pair of a preference.
    """

    id: str
    kind: str
    prompt: str
    solution: str | None
    row: dict[str, Any]
    history: tuple[dict[str, str], ...] = ()
    answer: str | None = None
    rejected: str | None = None

    @property
    def reference(self) -> str | None:
        """What an answer is compared with: `answer`, or the solution where it is not known apart."""
        return self.solution if self.answer is None else self.answer


@runtime_checkable
class Tasks(Protocol):
    """A fixed, indexable set of tasks, and the world that plays them."""

    @property
    def kinds(self) -> list[str]:
        """Every kind of task that it may hold."""

    @property
    def turns(self) -> int:
        """The most answers that one episode takes; one that is not over after them is truncated."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Task:
        """The task at 0 <= index < len, always the same one."""

    def episode(self, task: Task) -> Episode:
        """A new play of one of its tasks."""


def signals_of(tasks: Tasks) -> tuple[str, ...]:
    """Names of the numbers beside the reward that these tasks tell of each answer, in `Step.info["signals"]`: their
    attribute `signals`, if they have one."""
    return tuple(getattr(tasks, "signals", ()))


def are_verified(tasks: Tasks) -> bool:
    """Whether rewards of these tasks are about how good an answer is: their attribute `verified`, if they have one.
    False where all that is known of them is a preferred and a rejected answer."""
    return bool(getattr(tasks, "verified", True))


def held_in_memory(tasks: Tasks) -> bool:
    """Whether every task exists already, so that looking at all of them costs little: their attribute `in_memory`, if
    they have one. Tasks that are generated when they are asked for have none."""
    return bool(getattr(tasks, "in_memory", False))


def scorers_of(tasks: Tasks) -> Sequence[Mapping[str, Any]]:
    """The scorers that these tasks are going to need in worker processes, as far as they are known: their attribute
    `scorers`, if they have one."""
    return tuple(getattr(tasks, "scorers", ()))


@dataclasses.dataclass(frozen=True)
class TaskSplit:
    """Tasks to learn from, and tasks to be judged on; no task is in both. texts: raw texts on what they are about."""

    train: Tasks
    heldout: Tasks
    texts: Sequence[str] = ()


class WorldError(UserError, RuntimeError):
    """A world broke its protocol, or its own code raised; the message names the task and the method."""


class EpisodeError(WorldError):
    """A step was taken in an episode that is over or has not begun."""
