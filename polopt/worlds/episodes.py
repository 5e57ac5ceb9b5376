"""Environments built from a class with `reset` and `step` and lists of tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from polopt.config import ConfigError
from polopt.worlds.protocol import Episode, Step, Task, TaskSplit, WorldError

Entry = Task | str | Mapping[str, Any]


def environment(
    episode: Callable[[Task], Any],
    *,
    train: Sequence[Entry],
    heldout: Sequence[Entry],
    turns: int = 1,
    signals: Sequence[str] = (),
    texts: Sequence[str] = (),
) -> TaskSplit:
    """Builds the tasks of an environment whose episodes are objects with `reset` and `step`.

    episode: a class or function that is called with a `Task` and returns an object with `reset() -> str` and
        `step(action) -> Step`. Its `demonstrate() -> str | None` is optional: without it, a single-turn environment
        demonstrates the task's solution, and a multi-turn environment has no demonstrations.
    train, heldout: tasks, each a `Task`, a prompt, or a mapping with `prompt` and, optionally, `id`, `kind` and
        `solution`; every other key of a mapping is kept in `Task.row`.
    turns: the most answers that one episode takes.
    signals: as for `signals_of`.
    texts: as in `TaskSplit`.

    Raises:
        ConfigError: a task has no prompt, or two tasks have the same id.
    """
    parts = {"train": train, "heldout": heldout}
    tasks = {name: [_task(entry, name, i) for i, entry in enumerate(entries)] for name, entries in parts.items()}
    ids: set[str] = set()
    for task in (*tasks["train"], *tasks["heldout"]):
        if task.id in ids:
            raise ConfigError(
                f"environment: two tasks have the id {task.id!r}; ids must differ, and no task may be in "
                "both train and heldout"
            )
        ids.add(task.id)
    task_sets = {name: EnvironmentTasks(episode, listed, turns, signals) for name, listed in tasks.items()}
    return TaskSplit(task_sets["train"], task_sets["heldout"], texts)


class EnvironmentTasks:
    """Tasks in memory whose episodes are objects with `reset` and `step`; see `environment`."""

    in_memory = True

    def __init__(
        self, episode: Callable[[Task], Any], tasks: Sequence[Task], turns: int, signals: Sequence[str] = ()
    ) -> None:
        self._episode, self._tasks, self.turns, self.signals = episode, list(tasks), turns, tuple(signals)

    @property
    def kinds(self) -> list[str]:
        return sorted({task.kind for task in self._tasks})

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, index: int) -> Task:
        return self._tasks[index]

    def episode(self, task: Task) -> Episode:
        inner = self._episode(task)
        for method in ("reset", "step"):
            if not callable(getattr(inner, method, None)):
                raise WorldError(
                    f"task {task.id}: {type(inner).__name__}.{method} is missing; an episode has both reset() "
                    "and step(action)"
                )
        return inner if hasattr(inner, "demonstrate") else WithSolution(inner, task.solution, self.turns)


class WithSolution:
    """An episode whose class has no `demonstrate`: the task's solution is its demonstration where there is one turn."""

    def __init__(self, inner: Any, solution: str | None, turns: int) -> None:
        self.inner, self.solution = inner, solution if turns == 1 else None

    def reset(self) -> str:
        return self.inner.reset()

    def step(self, action: str) -> Step:
        return self.inner.step(action)

    def demonstrate(self) -> str | None:
        return self.solution


def _task(entry: Entry, name: str, number: int) -> Task:
    if isinstance(entry, Task):
        return entry
    fields: dict[str, Any] = {"prompt": entry} if isinstance(entry, str) else dict(entry)
    if not isinstance(fields.get("prompt"), str) or not fields["prompt"]:
        raise ConfigError(
            f"environment: {name}[{number}] must be a Task, a prompt, or a mapping with a non-empty text `prompt`, "
            f"found {entry!r:.80}"
        )
    return Task(
        id=str(fields.pop("id", f"{name}/{number}")),
        kind=str(fields.pop("kind", "task")),
        prompt=fields.pop("prompt"),
        solution=fields.pop("solution", None),
        row=fields,
    )
