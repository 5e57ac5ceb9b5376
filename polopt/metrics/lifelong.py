"""Logs of learners that train on one task after another, and the curves of experts of a single task."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polopt.metrics.row_format import MetricDataError, RowFormat, RunScores, column_names, name_in, number_in

Numbers = NDArray[np.float64]
COLUMNS = ("type", "task", "block", "experience", "performance", "run")
KINDS = ("train", "eval", "expert")


@dataclasses.dataclass(frozen=True, eq=False)
class LifelongLog:
    """N measurements of performance; arrays or lists, [N] each.

    kind: "train" or "eval", the kind of block that the learner was in, or "expert" for a learner of this task alone.
    task: its name. block: the place of the block in the learner's lifetime, any number for an expert. experience: the
    place of the measurement within the run; several of one task, block and experience are averaged. performance: the
    higher the better. run: the lifetime, or the expert's run; None where there is one.

    Raises:
        MetricDataError: arrays of different lengths or without rows, numbers that are not finite, an unknown kind, a
            block of two kinds, or no lifetime.
    """

    kind: Any
    task: Any
    block: Any
    experience: Any
    performance: Any
    run: Any = None

    def __post_init__(self) -> None:
        n = len(np.atleast_1d(np.asarray(self.kind)))
        types = {"kind": str, "task": str, "block": float, "experience": float, "performance": float}
        for name, kind in types.items():
            object.__setattr__(self, name, np.asarray(getattr(self, name), kind))
        object.__setattr__(self, "run", np.asarray(["0"] * n if self.run is None else [str(x) for x in self.run], str))
        shapes = {name: getattr(self, name).shape for name in (*types, "run")}
        if not n or any(shape != (n,) for shape in shapes.values()):
            raise MetricDataError(f"LifelongLog: every column must be [N] with N >= 1, found {shapes}")
        if not (np.isfinite(self.block) & np.isfinite(self.experience) & np.isfinite(self.performance)).all():
            raise MetricDataError("LifelongLog: block, experience and performance must be finite numbers")
        if unknown := sorted(set(self.kind.tolist()) - set(KINDS)):
            raise MetricDataError(f"LifelongLog: type must be train, eval or expert, found {unknown[0]!r:.60}")
        own = self.kind != "expert"
        if not own.any():
            raise MetricDataError("LifelongLog: there is no row of type train or eval, so that no learner is measured")
        kinds: dict[tuple[str, float], str] = {}
        for run, block, kind in zip(self.run[own], self.block[own], self.kind[own], strict=True):
            if kinds.setdefault((run, block), kind) != kind:
                raise MetricDataError(
                    f"run {run!r:.60}: block {block:g} is of both types, train and eval; number them apart"
                )

    def __len__(self) -> int:
        return len(self.kind)

    def __getitem__(self, rows: Sequence[int] | NDArray[Any]) -> LifelongLog:
        return LifelongLog(**{f.name: getattr(self, f.name)[rows] for f in dataclasses.fields(self)})

    def normalised(self, low: float | None = None, high: float | None = None) -> LifelongLog:
        """Returns the log with each task's performance mapped to [1, 101]: from [low, high], by default from the
        smallest to the largest of the task in all lifetimes and experts. A task whose performance never varies is 1."""
        found = np.array(self.performance)
        for task in set(self.task.tolist()):
            rows = self.task == task
            least = found[rows].min() if low is None else low
            most = found[rows].max() if high is None else high
            found[rows] = 1 + 100 * (found[rows] - least) / (most - least if most > least else 1.0)
        return dataclasses.replace(self, performance=found)

    def lifetimes(self) -> dict[str, Lifetime]:
        """Returns the blocks of each lifetime, in order."""
        own = self.kind != "expert"
        return {run: Lifetime(self._blocks(own & (self.run == run))) for run in sorted(set(self.run[own].tolist()))}

    def experts(self, task: str) -> list[Numbers]:
        """Returns the curves of a task's experts."""
        rows = (self.kind == "expert") & (self.task == task)
        runs = sorted(set(self.run[rows].tolist()))
        return [
            averaged(self.experience[each], self.performance[each])
            for r in runs
            if (each := rows & (self.run == r)).any()
        ]

    def _blocks(self, rows: NDArray[np.bool_]) -> list[LifelongBlock]:
        found = []
        for block in sorted(set(self.block[rows].tolist())):
            here = rows & (self.block == block)
            for task in sorted(set(self.task[here].tolist())):
                each = here & (self.task == task)
                curve = averaged(self.experience[each], self.performance[each])
                found.append(LifelongBlock(self.kind[each][0], task, block, curve))
        return found


def averaged(experience: Numbers, performance: Numbers) -> Numbers:
    """Returns the mean performance of each experience, in their order."""
    _, place, counts = np.unique(experience, return_inverse=True, return_counts=True)
    found: Numbers = np.bincount(place, performance) / counts
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class LifelongBlock:
    """One task in one block: its curve of performance, [n]."""

    kind: Literal["train", "eval"]
    task: str
    block: float
    curve: Numbers

    @property
    def terminal(self) -> float:
        """Returns the terminal performance: the mean of an evaluation, of the last 10 % of training."""
        first = int(0.9 * len(self.curve)) if self.kind == "train" else 0
        return float(self.curve[first:].mean())


@dataclasses.dataclass(frozen=True, eq=False)
class Lifetime:
    """The blocks of one learner, in order."""

    blocks: list[LifelongBlock]

    @property
    def tasks(self) -> list[str]:
        """Returns the names of the tasks."""
        return sorted({block.task for block in self.blocks})

    def of(self, kind: str, task: str) -> list[LifelongBlock]:
        """Returns the blocks of a kind with a task."""
        return [block for block in self.blocks if block.kind == kind and block.task == task]

    def training(self, task: str) -> Numbers:
        """Returns the curve of all training on a task; empty where there was none."""
        return np.concatenate([np.zeros(0), *(block.curve for block in self.of("train", task))])

    def maintenance(self, task: str) -> Numbers:
        """Returns the change of the task's evaluations since the first one after its last training before them; those
        first ones themselves left out. [later evaluations]"""
        evals, references = self.of("eval", task), {}
        for train in self.of("train", task):
            later = [block for block in evals if block.block > train.block]
            if later:
                references[later[0].block] = later[0].terminal
        found = []
        for block in evals:
            before = [place for place in references if place < block.block]
            if before and block.block not in references:
                found.append(block.terminal - references[max(before)])
        return np.array(found)

    def transfers(self, source: str, target: str) -> dict[str, list[tuple[float, float]]]:
        """Returns the target's evaluations just before and just after each block of training on the source: `forward`
        before the target was ever trained, `backward` after that."""
        evals, own = self.of("eval", target), self.of("train", target)
        first = min((block.block for block in own), default=math.inf)
        found: dict[str, list[tuple[float, float]]] = {"forward": [], "backward": []}
        for train in self.of("train", source):
            for one, two in itertools.pairwise(evals):
                if one.block < train.block < two.block and train.block != first:
                    way = "forward" if train.block < first else "backward"
                    found[way].append((one.terminal, two.terminal))
        return found

    def recovery_times(self, task: str) -> Numbers:
        """Returns, of each block of training on a task after its first, the number of experiences before performance
        is at least the previous one's terminal performance; one more than there are where it never is."""
        trains, found = self.of("train", task), []
        for before, block in itertools.pairwise(trains):
            reached = np.flatnonzero(block.curve >= before.terminal)
            found.append(float(reached[0]) if len(reached) else len(block.curve) + 1.0)
        return np.array(found)


def saturation(curve: ArrayLike) -> tuple[float, int]:
    """Returns the largest value of a curve's moving average, and the first place where it is reached.

    The window has min(0.2 n, 100) values, rounded down, and the curve is mirrored at its ends; a window of less than 3
    is left out.
    """
    x = np.asarray(curve, float)
    width = min(int(0.2 * len(x)), 100)
    if width >= 3:
        left = math.ceil(width / 2)
        padded = np.pad(x, (left, width), mode="reflect")
        sums = np.concatenate([[0.0], np.cumsum(padded)])
        x = (sums[width:] - sums[:-width])[: len(x)] / width
    top = float(x.max())
    return top, int(np.flatnonzero(x >= top - 1e-9 * max(1.0, abs(top)))[0])


def lifelong_row(row: Mapping[str, Any], columns: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Checks one measurement of a file; an expert needs no `block`, and `run` may be missing.

    Raises:
        MetricDataError: a column that is missing, no number, or an unknown type.
    """
    names = column_names(COLUMNS, columns)
    found: dict[str, Any] = {}
    found |= {name: name_in(row, names[name]) for name in ("type", "task")}
    if found["type"] not in KINDS:
        raise MetricDataError(f"{names['type']} must be train, eval or expert, found {found['type']!r:.60}")
    for name in ("block", "experience", "performance"):
        value = number_in(row, names[name], required=name != "block" or found["type"] != "expert")
        found[name] = 0.0 if value is None else value
    run = row.get(names["run"])
    return found | {"run": "0" if run in (None, "") else str(run)}


def lifelong_log(rows: Iterable[tuple[int, Mapping[str, Any]]]) -> LifelongLog:
    """Assembles measurements.

    Raises:
        MetricDataError: as `LifelongLog`.
    """
    found = [row for _, row in rows]
    return LifelongLog(*([row[name] for row in found] for name in COLUMNS))


def lifelong_run(run: RunScores) -> list[dict[str, Any]]:
    """Returns the measurements of a run of several stages: its held-out scores.

    A stage is a block of training, whose curve is its scores during and after it. Its last score is an evaluation after
    the block, too, and the score before it one before the block. An extended stage has several blocks.

    Raises:
        MetricDataError: one stage, or a stage without scores.
    """
    if len(run.tasks) < 2:
        raise MetricDataError(f"the run has one stage, {', '.join(run.tasks)}; lifelong learning needs two or more")
    scored = {each["stage"] for each in run.evaluations if "other" not in each}
    if unseen := [stage for stage in run.tasks if stage not in scored]:
        raise MetricDataError(
            f"stage {unseen[0]!r:.60} of the run has no held-out score: set evaluation.every to its steps or fewer"
        )
    rows: list[dict[str, Any]] = []
    block = -1
    before: tuple[Any, ...] | None = None  # of the last score: round and stage, and whether it began or ended a block

    def add(kind: str, each: Mapping[str, Any]) -> None:
        task = f"others.{each['other']}" if "other" in each else run.tasks[each["stage"]]
        rows.append(
            {"type": kind, "task": task, "block": block, "experience": each["step"], "performance": each["score"]}
        )

    own = [each for each in run.evaluations if "other" not in each]
    others = [each for each in run.evaluations if "other" in each]
    for i, each in enumerate(own):
        place = (each.get("round"), each["stage"])
        if each["when"] == "before":
            block += 1
            add("eval", each)
        else:
            block += before != (place, "during")
            add("train", each)
        following = own[i + 1] if i + 1 < len(own) else {}
        ends = (following.get("round"), following.get("stage")) != place
        if each["when"] == "after" or (each["when"] == "during" and ends):
            block += 1
            add("eval", each)
        if each["when"] != "during":
            for other in others:
                if all(other.get(key) == each.get(key) for key in ("round", "stage", "step", "when")):
                    add("eval", other)
        before = (place, "during" if each["when"] == "during" and not ends else "")
    return rows


LIFELONG_ROWS = RowFormat(
    "performance of a lifelong learner", COLUMNS, lifelong_row, lifelong_log, rows_of_run=lifelong_run
)
