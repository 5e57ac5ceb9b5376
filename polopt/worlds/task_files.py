"""Files whose rows are tasks: reading, checking and splitting."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from polopt.config import ConfigError
from polopt.errors import PoloptWarning
from polopt.worlds.answers import TaskList
from polopt.worlds.protocol import Task, TaskSplit
from polopt.worlds.rows import places

# Texts with more characters than this cause a warning.
HUGE = 100_000


class TaskFileReader:
    """Base of readers that convert the rows of a file to tasks; a subclass defines the format of a row."""

    def read(self, path: str | Path) -> TaskList:
        """Returns every row of a file as a task.

        Raises:
            ConfigError: no such file, no rows, or malformed rows, with their lines.

        Warns:
            PoloptWarning: a peculiarity of the rows, such as a huge text.
        """
        return self._list(self._tasks(Path(path)))

    def split(self, path: str | Path, *, heldout: float | str | Path, seed: int = 0) -> TaskSplit:
        """Returns training and held-out tasks without a prompt in common.

        heldout: another file, or a fraction in (0, 1) of this one's prompts, picked by `seed` and the prompt's text.
            Rows with the same prompt stay together; rows whose prompt is in the held-out file are left out of training,
            with a warning.

        Raises:
            ConfigError: as for `read`, or one side would be empty.
        """
        tasks = self._tasks(Path(path))
        if isinstance(heldout, (str, Path)):
            heldout_tasks = self._tasks(Path(heldout))
            prompts = {prompt_key(task) for task in heldout_tasks}
        else:
            prompts = _fraction(tasks, heldout, seed, where=str(path))
            heldout_tasks = [task for task in tasks if prompt_key(task) in prompts]
        train_tasks = [task for task in tasks if prompt_key(task) not in prompts]
        if not train_tasks:
            raise ConfigError(f"{path}: every prompt is also held out in {heldout}, nothing is left to learn from")
        if isinstance(heldout, (str, Path)) and len(train_tasks) < len(tasks):
            warn_reader(
                f"{path}: left {len(tasks) - len(train_tasks)} of {len(tasks)} rows out of training, "
                f"because their prompt is held out in {heldout}"
            )
        return TaskSplit(self._list(train_tasks), self._list(heldout_tasks))

    def _list(self, tasks: Sequence[Task]) -> TaskList:
        """Returns the tasks as a list with the scorer of their answers."""
        raise NotImplementedError

    def _tasks(self, path: Path) -> list[Task]:
        """Returns every row of a file as a task, with an id."""
        raise NotImplementedError


def huge(rows: Sequence[tuple[int, Task]], path: Path) -> Iterator[str]:
    """Yields a sentence if some rows have more than `HUGE` characters in their prompt or solution."""
    size = {n: len(prompt_key(t)) + sum(len(answer) for answer in _answers_of(t)) for n, t in rows}
    found = [n for n, count in size.items() if count > HUGE]
    if found:
        yield (
            f"{places(found, path)} {'hold' if len(found) > 1 else 'holds'} more than {HUGE:,} characters in prompt "
            f"and solution, the largest {max(size.values()):,}; no model reads that many in reasonable time"
        )


def _answers_of(task: Task) -> list[str]:
    return [answer.text for answer in task.rated] or [task.solution or ""]


def prompt_key(task: Task) -> str:
    """Returns a key of the prompt, the same for tasks with the same prompt: the text, or the whole conversation."""
    if not task.history:
        return task.prompt
    return json.dumps([*task.history, {"role": "user", "content": task.prompt}], ensure_ascii=False)


def warn_reader(sentence: str) -> None:
    warnings.warn(sentence, PoloptWarning, stacklevel=4)


def _fraction(tasks: Sequence[Task], fraction: float, seed: int, where: str) -> set[str]:
    """Returns the prompts to hold out: a fraction with the smallest hashes with the seed, whatever their order in the
    file."""
    prompts = sorted(
        {prompt_key(task) for task in tasks}, key=lambda text: hashlib.sha256(f"{seed}/{text}".encode()).digest()
    )
    if not 0 < fraction < 1:
        raise ConfigError(f"heldout = {fraction}: expected a fraction between 0 and 1, or the path of a second file")
    if len(prompts) < 2:
        raise ConfigError(f"{where} has one prompt only; two are needed to hold one out")
    return set(prompts[: min(max(1, round(fraction * len(prompts))), len(prompts) - 1)])
