"""The protocol of a world: tasks, and the episodes played on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from polopt.errors import UserError

# The largest size of a reward. Batches are float32: the squares of a million of them still add up to a finite number.
LARGEST = 1e16


class Step(NamedTuple):
    """The transition that an environment returns for an action.

    observation: the text that the policy reads next; empty when the episode is over.
    reward: the reward of this step alone.
    terminated: True if the episode reached its end.
    truncated: True if a limit of the world cut the episode off; unlike after termination, later rewards were still
        possible.
    info: diagnostics of the step, not part of the observation. `solved`, if given, states whether the task is done;
        without it, a task counts as solved when its rewards add up to 1. `feedback`, if given, is a text on the
        mistakes of the answer, for teacher models to read. `answer`, if given, is the answer that the world extracted
        from a longer text. `signals`, if given, maps names to further numbers about the answer, for parts that read
        them; see `signals_of`. `sections`, if given, are the parts of an answer with a form, `SectionSpan`s.
    """

    observation: str
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]

    @property
    def over(self) -> bool:
        return self.terminated or self.truncated


# The step of an episode that was given up.
LOST = Step("", 0.0, terminated=False, truncated=True, info={"lost": True})


class Episode(Protocol):
    """One episode of one task. A single answer is an episode that terminates after its first step."""

    def reset(self) -> str:
        """Starts the episode anew and returns its first observation, which is the task's prompt."""

    def step(self, action: str) -> Step:
        """Plays one action.

        Raises:
            EpisodeError: the episode is over, or has not begun.
        """

    def demonstrate(self) -> str | None:
        """Returns a good action for the current state, for supervised warm-up; None where the world has none."""


class RatedAnswer(NamedTuple):
    """An answer of known quality. score: higher for a better one; 1 and 0 where it is only known to be good or bad."""

    text: str
    score: float


@dataclasses.dataclass(frozen=True)
class Task:
    """One problem.

    id: stable between runs, unique among the tasks of its set.
    kind: category of the task; results are reported per kind.
    prompt: the first observation.
    solution: an answer that the world accepts, where one is known and the world takes a single answer; it may include
        its working.
    row: the world's further data of the task.
    history: messages before the prompt, each with `role` and `content`: a system prompt, earlier turns.
    answer: the solution without its working, where it is known separately.
    rated: answers of known quality, the best first; a preference pair is two of them.
    """

    id: str
    kind: str
    prompt: str
    solution: str | None
    row: dict[str, Any]
    history: tuple[dict[str, str], ...] = ()
    answer: str | None = None
    rated: tuple[RatedAnswer, ...] = ()

    @property
    def reference(self) -> str | None:
        """The reference answer: `answer`, or the solution where no separate answer is known."""
        return self.solution if self.answer is None else self.answer

    @property
    def is_ranked(self) -> bool:
        """Tests whether answers of different quality are known."""
        return len({answer.score for answer in self.rated}) > 1


@runtime_checkable
class Tasks(Protocol):
    """A fixed, indexable set of tasks, and the world that plays them."""

    @property
    def kinds(self) -> list[str]:
        """Every kind of task that the set may contain."""

    @property
    def turns(self) -> int:
        """The most answers that one episode takes; an episode that is not over after them is truncated."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Task:
        """Returns the task at 0 <= index < len, the same one at every call."""

    def episode(self, task: Task) -> Episode:
        """Returns a new episode of one of the tasks."""


def signals_of(tasks: Tasks) -> tuple[str, ...]:
    """Returns the names of the numbers that these tasks report of each answer in `Step.info["signals"]`: their
    attribute `signals`, if they have one."""
    return tuple(getattr(tasks, "signals", ()))


def has_sections(tasks: Tasks) -> bool:
    """Returns True if steps of these tasks tell the sections of each answer: their attribute `has_sections`, if they
    have one."""
    return bool(getattr(tasks, "has_sections", False))


def are_verified(tasks: Tasks) -> bool:
    """Returns True if rewards of these tasks measure the quality of an answer: their attribute `verified`, if they have
    one.

    False where only some answers and their scores are known.
    """
    return bool(getattr(tasks, "verified", True))


def held_in_memory(tasks: Tasks) -> bool:
    """Returns True if every task already exists, so that iterating over all of them is cheap: the attribute
    `in_memory`.

    Tasks that are generated on access do not have the attribute.
    """
    return bool(getattr(tasks, "in_memory", False))


def scorers_of(tasks: Tasks) -> Sequence[Mapping[str, Any]]:
    """Returns the specs of the scorers that these tasks will need in worker processes, as far as they are known: their
    attribute `scorers`, if they have one."""
    return tuple(getattr(tasks, "scorers", ()))


@dataclasses.dataclass(frozen=True)
class TaskSplit:
    """Training tasks and held-out evaluation tasks, without a task in common.

    texts: raw texts on the subject of the tasks.
    """

    train: Tasks
    heldout: Tasks
    texts: Sequence[str] = ()


class WorldError(UserError, RuntimeError):
    """Raised when a world violates the protocol or its own code raises; the message names the task and the method."""


class EpisodeError(WorldError):
    """Raised for a step in an episode that is over or has not begun."""
