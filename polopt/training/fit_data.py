"""The pairs that a preference model is fitted to, from the tasks of a recipe."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from polopt.backends import Pairs, TextClassifier, TextScorer
from polopt.config import ConfigError
from polopt.errors import PoloptWarning
from polopt.packages import path_of
from polopt.training.fit_recipe import FitRecipe
from polopt.worlds.protocol import Task, Tasks
from polopt.worlds.recipe import build_tasks
from polopt.worlds.rows import MalformedRow, places, shown, value_of
from polopt.worlds.task_files import prompt_key

TRUTHS = {"true": True, "1": True, "false": False, "0": False}


@dataclasses.dataclass(frozen=True)
class FitPairs:
    """Labelled pairs of answers.

    pairs: texts, margins and probabilities. lines: of each, in `path`. prompts: a key of each one's prompt, the unit of
    intervals. first: whether the preferred answer was shown first, None where that is not known. with_history: lines of
    rows with messages before the prompt.
    """

    path: Path
    pairs: Pairs
    lines: list[int]
    prompts: list[str]
    first: list[bool | None]
    with_history: list[int]

    def __len__(self) -> int:
        return len(self.pairs)


def read_pairs(recipe: FitRecipe) -> tuple[FitPairs, FitPairs]:
    """Returns the pairs to learn from and the held-out ones, without a prompt in common. Of a ranked list, every two
    answers of different score are a pair.

    Raises:
        ConfigError: a file that cannot be read, or malformed rows, with their lines.

    Warns:
        PoloptWarning: rows have a field `margin` that no setting names, or messages before their prompts.
    """
    split = build_tasks(recipe.tasks, seed=recipe.seed)
    path, heldout = (recipe.tasks.get(name) for name in ("path", "heldout"))
    train_path = path_of(path, "tasks.path") if isinstance(path, str) else Path("tasks")
    other = path_of(heldout, "tasks.heldout") if isinstance(heldout, str) else train_path
    found = _read(recipe, split.train, train_path), _read(recipe, split.heldout, other)
    _caution(recipe, found[0], split.train)
    return found


class _Row(NamedTuple):
    line: int
    task: Task
    better: str
    worse: str
    margin: float
    probability: float
    first: bool | None


def _read(recipe: FitRecipe, tasks: Tasks, path: Path) -> FitPairs:
    rows: list[_Row] = []
    problems: dict[str, list[int]] = {}
    for index in range(len(tasks)):
        task = tasks[index]
        line = _line(task, index)
        try:
            values = _values(recipe, task)
        except MalformedRow as error:
            problems.setdefault(str(error), []).append(line)
            continue
        rows += [
            _Row(line, task, better.text, worse.text, *values)
            for i, better in enumerate(task.rated)
            for worse in task.rated[i + 1 :]
            if better.score > worse.score
        ]
    if problems:
        listed = "; ".join(f"{places(lines, path)}: {text}" for text, lines in list(problems.items())[:5])
        raise ConfigError(f"{path}: {sum(map(len, problems.values()))} rows are malformed: {listed}")
    if not rows:
        raise ConfigError(f"{path}: no row has two answers of different quality; give pairs or ranked lists")
    pairs = Pairs(
        [row.task.prompt for row in rows],
        [row.better for row in rows],
        [row.worse for row in rows],
        margins=[row.margin for row in rows] if recipe.margin else None,
        probabilities=[row.probability for row in rows] if recipe.probability else None,
    )
    return FitPairs(
        path=path,
        pairs=pairs,
        lines=[row.line for row in rows],
        prompts=[prompt_key(row.task) for row in rows],
        first=[row.first for row in rows],
        with_history=[row.line for row in rows if row.task.history],
    )


def _line(task: Task, index: int) -> int:
    number = task.id.rpartition(":")[2]
    return int(number) if number.isdecimal() else index + 1


def _values(recipe: FitRecipe, task: Task) -> tuple[float, float, bool | None]:
    """Returns margin, probability and position of a row."""
    margin = _number(task.row, recipe.margin, math.isfinite, "a finite number")
    probability = _number(task.row, recipe.probability, lambda p: 0 < p <= 1, "a probability in (0, 1]")
    if recipe.position is None:
        return margin, probability, None
    value = value_of(task.row, recipe.position)
    truth = TRUTHS.get(str(value).strip().lower())
    if truth is None:
        raise MalformedRow(f"field {recipe.position!r} must be true or false, found {shown(value)}")
    return margin, probability, truth


def _number(row: dict[str, Any], field: str | None, fits: Callable[[float], bool], wanted: str) -> float:
    if field is None:
        return 0.0
    value = value_of(row, field)
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # in CSV numbers are text
    except (TypeError, ValueError):
        number = math.nan
    if not fits(number):
        raise MalformedRow(f"field {field!r} must be {wanted}, found {shown(value)}")
    return number


def _caution(recipe: FitRecipe, found: FitPairs, tasks: Tasks) -> None:
    if found.with_history:
        where = places(set(found.with_history), found.path)
        _warn(
            f"{found.path}: {where}: messages before the prompt are not read, here and by judges; write them into the "
            "prompt"
        )
    if recipe.margin is None and "margin" in tasks[0].row:
        _warn(f"{found.path}: rows have a field 'margin', which is not read; --margin margin takes it")


def check_lengths(scorer: TextScorer | TextClassifier, *found: FitPairs) -> None:
    """Checks that the scorer reads all texts in full.

    Raises:
        ConfigError: a text is longer than a model's context; the lines.

    Warns:
        PoloptWarning: a `TextScorer` reads the end of a prompt, or the beginning of an answer, alone.
    """
    for each in found:
        pairs = each.pairs
        if isinstance(scorer, TextScorer):
            most = scorer.shape.length
            sizes = zip(pairs.prompts, pairs.better, pairs.worse, strict=True)
            long = [max(len(text.encode("utf-8", "replace")) for text in texts) > most for texts in sizes]
        elif scorer.compares:
            long = scorer.too_long(pairs.prompts, pairs.better, pairs.worse)
        else:
            sides = (scorer.too_long(pairs.prompts, side) for side in (pairs.better, pairs.worse))
            long = [a or b for a, b in zip(*sides, strict=True)]
        lines = {line for line, is_long in zip(each.lines, long, strict=True) if is_long}
        if not lines:
            continue
        where = f"{each.path}: {places(lines, each.path)}"
        if not isinstance(scorer, TextScorer):
            raise ConfigError(
                f"{where}: texts are longer than the {scorer.context:g} tokens that the model reads; shorten them or "
                "leave the rows out, as nothing is cut off"
            )
        _warn(
            f"{where}: the scorer reads the last {scorer.shape.length} bytes of a prompt and the first of an answer "
            "alone; --set shape.length=... reads more"
        )


def _warn(sentence: str) -> None:
    warnings.warn(sentence, PoloptWarning, stacklevel=3)
