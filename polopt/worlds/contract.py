"""Checks of the world protocol: a violation raises one sentence that names the method, the value found and the fix."""

from __future__ import annotations

import contextlib
import math
import numbers
import random
import traceback
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polopt.config import ConfigError
from polopt.errors import PoloptWarning, UserError
from polopt.worlds.answers import step_together, takes_many
from polopt.worlds.episodes import WithSolution
from polopt.worlds.protocol import LARGEST, LOST, Episode, RatedAnswer, Step, Task, Tasks, TaskSplit, WorldError

# The most steps of the trial episode that is played before training.
TRIED = 20

AS_STEP = "polopt.worlds.Step(observation, reward, terminated, truncated, info)"
METHODS = {
    "reset": "reset() -> str, which starts the episode and returns its first observation",
    "step": f"step(action: str) -> {AS_STEP}",
    "demonstrate": "demonstrate() -> str | None, which returns a good action, or None where none is known "
    "(polopt.worlds.environment adds it)",
}


class CheckedEpisode:
    """An episode wrapper that checks the return value of each method of the inner episode.

    Raises:
        WorldError: a method is missing, raised, or returned a value that violates the protocol; the sentence names the
            task, the method, the value found and the value expected.
    """

    def __init__(self, inner: Episode, task: Task) -> None:
        self.inner, self.task, self.steps = inner, task, 0

    def reset(self) -> str:
        self.steps = 0
        return self._text("reset", self._call("reset"))

    def step(self, action: str) -> Step:
        self.steps += 1
        return self._checked(self._call("step", action))

    @classmethod
    def step_many(cls, episodes: Sequence[CheckedEpisode], actions: Sequence[str]) -> list[Step]:
        """Steps each episode; episodes whose class has a matching `step_many` are stepped in one call, see
        `step_together`."""
        steps: dict[int, Step] = {}
        many = [i for i, episode in enumerate(episodes) if takes_many(type(episode.inner))]
        if many:
            tasks = f"tasks {episodes[many[0]].task.id} to {episodes[many[-1]].task.id}"
            with own_code(f"{tasks}: {type(episodes[many[0]].inner).__name__}.step_many"):
                found = step_together([episodes[i].inner for i in many], [actions[i] for i in many])
            for i, step in zip(many, found, strict=True):
                episodes[i].steps += 1
                steps[i] = episodes[i]._checked(step)
        return [steps[i] if i in steps else episode.step(actions[i]) for i, episode in enumerate(episodes)]

    @property
    def together(self) -> Hashable | None:
        """The inner episode's `OneAnswer.together`, None if it has none."""
        return getattr(self.inner, "together", None)

    def _checked(self, step: Any) -> Step:
        return checked_step(step, f"task {self.task.id}, step {self.steps}", self._name("step"))

    def demonstrate(self) -> str | None:
        found = self._call("demonstrate")
        return None if found is None else self._text("demonstrate", found)

    def _name(self, method: str) -> str:
        inner = self.inner.inner if isinstance(self.inner, WithSolution) else self.inner
        return f"{type(inner).__name__}.{method}"

    def _text(self, method: str, value: Any) -> str:
        if not isinstance(value, str):
            raise WorldError(
                f"task {self.task.id}: {self._name(method)} must return text, found {shown(value)}; write "
                f"{METHODS[method]}"
            )
        return value

    def _call(self, method: str, *arguments: str) -> Any:
        function = getattr(self.inner, method, None)
        if not callable(function):
            raise WorldError(f"task {self.task.id}: {self._name(method)} is missing; write {METHODS[method]}")
        with own_code(f"task {self.task.id}: {self._name(method)}"):
            return function(*arguments)


def new_episode(world: Tasks, task: Task) -> CheckedEpisode:
    """Returns a new, checked episode of one of a world's tasks.

    Raises:
        WorldError: the world's own code raised.
    """
    with own_code(f"task {task.id}: {type(world).__name__}.episode"):
        return CheckedEpisode(world.episode(task), task)


@contextlib.contextmanager
def own_code(what: str, error: Callable[[str], UserError] = WorldError) -> Iterator[None]:
    """Converts exceptions of user code into one sentence of type `error` with the file and line that raised."""
    try:
        yield
    except UserError:
        raise
    except Exception as found:
        place = traceback.extract_tb(found.__traceback__)[-1]
        raise error(
            f"{what} raised {type(found).__name__}: {_line(found)} ({Path(place.filename).name}, line {place.lineno})"
        ) from found


def checked_step(step: Any, where: str, method: str) -> Step:
    """Returns the step with a plain float as its reward and plain bools as its flags.

    where, method: named in the message.

    Raises:
        WorldError: the value is no `Step`, or one of its fields has another type or is not finite.
    """
    if step is LOST:
        return LOST
    if not isinstance(step, Step):
        hint = ""
        if isinstance(step, tuple) and len(step) == 5:
            hint = "; the fields are gymnasium's, in its order: return polopt.worlds.Step(*them)"
        elif isinstance(step, tuple) and len(step) == 4:
            hint = "; `done` is two fields here, terminated and truncated"
        raise WorldError(f"{where}: {method} must return {AS_STEP}, found {shown(step)}{hint}")
    reward = step.reward
    if not isinstance(reward, numbers.Real) or not math.isfinite(reward) or abs(reward) > LARGEST:
        raise WorldError(
            f"{where}: {method} returned the reward {shown(reward)}; a reward must be a finite number of at most "
            f"{LARGEST:g} in size, as 1.0 or 0.0"
        )
    if not isinstance(step.observation, str):
        raise WorldError(f"{where}: {method} returned the observation {shown(step.observation)}; it must be text")
    for name in ("terminated", "truncated"):
        if not isinstance(getattr(step, name), (bool, np.bool_)):
            raise WorldError(f"{where}: {method} returned {name} = {shown(getattr(step, name))}; it must be a bool")
    _check_info(step.info, where, method)
    return step._replace(reward=float(reward), terminated=bool(step.terminated), truncated=bool(step.truncated))


def _check_info(info: Any, where: str, method: str) -> None:
    if not isinstance(info, dict):
        raise WorldError(f"{where}: {method} returned info = {shown(info)}; it must be a dict, {{}} if there is none")
    signals = info.get("signals", {})
    if not isinstance(signals, Mapping):
        raise WorldError(f'{where}: {method} returned info["signals"] = {shown(signals)}; it must map names to numbers')
    for name, value in signals.items():
        if not isinstance(value, numbers.Real) or not math.isfinite(value):
            raise WorldError(
                f"{where}: {method} returned the signal {name!r} = {shown(value)}; it must be a finite number"
            )
    feedback = info.get("feedback")
    if feedback is not None and not isinstance(feedback, str):
        raise WorldError(f'{where}: {method} returned info["feedback"] = {shown(feedback)}; it must be text or None')


def check_split(split: TaskSplit, where: str) -> None:
    """Raises an error for tasks that the training loop cannot use, without playing an episode.

    where: names the source of the split in the message.

    Raises:
        ConfigError: one sentence with the attribute, the value found and the value expected.
    """
    for part in ("train", "heldout"):
        _check_tasks(getattr(split, part), f"{where}: {part}")


def _check_tasks(tasks: Any, where: str) -> None:
    kind = type(tasks).__name__
    for name, meaning in {
        "__len__": "the number of its tasks",
        "__getitem__": "the Task at an index",
        "episode": "a new Episode of a Task",
        "kinds": "the names of its kinds of tasks",
        "turns": "the most answers that one episode takes",
    }.items():
        if not hasattr(type(tasks), name) and not hasattr(tasks, name):
            raise ConfigError(
                f"{where}: {kind} has no {name}, {meaning}; add it, or make the tasks with polopt.worlds.environment"
            )
    with own_code(f"{where}: looking at {kind}", ConfigError):
        size, turns, kinds = len(tasks), tasks.turns, tasks.kinds
        first = tasks[0] if size else None
    if not size:
        raise ConfigError(f"{where} has no tasks; there must be at least one")
    if isinstance(turns, bool) or not isinstance(turns, int) or turns < 1:
        hint = "; make it a property" if callable(turns) else ""
        raise ConfigError(f"{where}: {kind}.turns must be a whole number >= 1, found {shown(turns)}{hint}")
    if not isinstance(kinds, Sequence) or isinstance(kinds, str) or not all(isinstance(k, str) for k in kinds):
        hint = "; make it a property" if callable(kinds) else ""
        raise ConfigError(f"{where}: {kind}.kinds must be a list of names, found {shown(kinds)}{hint}")
    _check_task(first, f"{where}: {kind}[0]")


def _check_task(task: Any, where: str) -> None:
    if not isinstance(task, Task):
        raise ConfigError(f"{where} must be a polopt.worlds.Task(id, kind, prompt, solution, row), found {shown(task)}")
    for name in ("id", "kind", "prompt"):
        if not isinstance(getattr(task, name), str) or not getattr(task, name):
            raise ConfigError(f"{where}.{name} must be non-empty text, found {shown(getattr(task, name))}")
    if task.solution is not None and not isinstance(task.solution, str):
        raise ConfigError(f"{where}.solution must be text, or None where none is known, found {shown(task.solution)}")
    if not isinstance(task.rated, tuple) or not all(isinstance(answer, RatedAnswer) for answer in task.rated):
        raise ConfigError(
            f"{where}.rated must be a tuple of polopt.worlds.RatedAnswer(text, score), found {shown(task.rated)}"
        )
    scores, texts = [answer.score for answer in task.rated], [answer.text for answer in task.rated]
    if not all(map(math.isfinite, scores)) or scores != sorted(scores, reverse=True) or len({*texts}) < len(texts):
        raise ConfigError(
            f"{where}.rated must be different answers with finite scores, the best first, found {shown(task.rated)}"
        )
    if not isinstance(task.row, dict):
        raise ConfigError(f"{where}.row must be a dict, found {shown(task.row)}")


def try_episode(tasks: Tasks, executor: Any) -> None:
    """Plays the first task's episode on the executor, with demonstrated actions or, without a demonstration, empty
    answers.

    Global random states of this process are restored afterwards. An episode that exceeds the executor's time limit
    causes a warning.

    Raises:
        WorldError: as for `CheckedEpisode`.
    """
    lost, task = executor.lost, tasks[0]
    with _same_random_numbers():
        handles = executor.open(tasks, [task])
        executor.reset(handles)
        for _ in range(min(tasks.turns, TRIED)):
            action = executor.demonstrate(handles)[0]
            if executor.step(handles, ["" if action is None else action])[0].over:
                break
    if executor.lost > lost:
        warnings.warn(
            f"task {task.id} was tried before training and did not answer within episodes.timeout; such episodes are "
            "truncated and counted in episodes/lost: raise episodes.timeout if the world is only slow",
            PoloptWarning,
            stacklevel=2,
        )


@contextlib.contextmanager
def _same_random_numbers() -> Iterator[None]:
    plain, array, tensor = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(plain)
        np.random.set_state(array)
        torch.set_rng_state(tensor)


def shown(value: Any) -> str:
    """Formats a value for a message, with its type unless it is a bool, number, text or None."""
    if isinstance(value, (bool, int, float, str)) or value is None:
        return f"{value!r:.80}"
    return f"{type(value).__name__} {value!r:.80}"


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
