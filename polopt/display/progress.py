"""Progress of a run: the numbers that a display shows, and the remaining time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from polopt.training.recipe import Recipe
from polopt.training.run import Run

# The pace of a stage is the mean of this many of its last steps.
RECENT = 10
# Cost of a sampled row relative to a demonstration (0.4 measured on the laptop recipe: groups share their prompts, and
# its batches are larger); used until a stage that samples has begun.
SAMPLED = 0.5


class Progress:
    """A `Watcher` that stores the numbers of a run. A resumed run's earlier numbers are read from its folder."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.perf_counter) -> None:
        self.folder, self.clock = folder, clock
        self.recipe: Recipe | None = None
        self.parameters = 0
        self.stage = ""
        self.done: dict[str, int] = {}
        self.record: Mapping[str, Any] = {}
        self.rewards: list[float] = []
        self.entropies: list[float] = []
        self.heldout: list[Mapping[str, Any]] = []
        self._spent: dict[str, list[float]] = {}
        self._samples: dict[str, bool] = {}
        self._judged = [0.0, 0]  # seconds, problems
        self._before = 0.0
        self._start = self._mark = clock()

    def begin(self, recipe: Recipe, about: Mapping[str, Any]) -> None:
        self.recipe, self.parameters, self._before = recipe, about["parameters"], about["seconds"]
        self._samples = {name: hasattr(a.sampling, "group") for name, a in recipe.algorithms.items()}
        self.done = dict.fromkeys(recipe.stages, 0)
        self.stage = next(iter(recipe.stages))
        if about["step"]:
            run = Run.open(self.folder)
            for record in run.read("metrics"):
                self._note(record)
            self.heldout = list(run.read("evaluations"))
        self._start = self._mark = self.clock()

    def step(self, record: Mapping[str, Any]) -> None:
        self._note(record)
        self._spent.setdefault(self.stage, []).append(self._lap())

    def evaluation(self, record: Mapping[str, Any]) -> None:
        self.heldout.append(record)
        self._judged[0] += self._lap()
        self._judged[1] += record["problems"]

    @property
    def total(self) -> int:
        """Number of steps of the whole run."""
        return self.recipe.total_steps if self.recipe else 0

    @property
    def steps(self) -> int:
        """Number of steps done."""
        return sum(self.done.values())

    def elapsed(self) -> float:
        """Returns the seconds of training, those before a resume included."""
        return self._before + self.clock() - self._start

    def judging(self) -> int:
        """Returns the number of held-out problems in the current evaluation; 0 while a step runs."""
        due = self._due() if self.recipe else []
        return due[0][1] if due and due[0][0] == self.steps else 0

    def _due(self) -> list[tuple[int, int]]:
        """Returns the remaining evaluations: (step of the run after which it takes place, problems)."""
        assert self.recipe is not None
        planned, start = [], 0
        for name, stage in [*self.recipe.stages.items()] * self.recipe.rounds:
            planned += [(start + n, count) for n, (_, count) in sorted(self.recipe.evaluations(name).items())]
            start += stage.steps
        return planned[len(self.heldout) :]

    def left(self) -> float | None:
        """Estimates the seconds until the end: every stage's steps at its own measured pace, and the remaining
        evaluations.

        A stage that has not begun is assumed to cost as much per row as the slowest one so far. None until a second
        step is measured.
        """
        if self.recipe is None or sum(map(len, self._spent.values())) < 2:
            return None
        pace = {name: self._pace(name) for name in self.recipe.stages}
        steps = sum(pace[n] * (self.recipe.rounds * s.steps - self.done[n]) for n, s in self.recipe.stages.items())
        problems = sum(count for _, count in self._due())
        each = self._judged[0] / self._judged[1] if self._judged[1] else 0.0
        return max(0.0, steps + each * problems - (self.clock() - self._mark))

    def _pace(self, name: str) -> float:
        """Returns the seconds per step of a stage."""
        assert self.recipe is not None
        spent = self._spent.get(name, [])
        if spent:
            # The first step of a stage also fills caches.
            recent = (spent[1:] or spent)[-RECENT:]
            return sum(recent) / len(recent)
        row = max(self._pace(n) / self.recipe.stages[n].rows for n in self._spent)
        sampled = self._samples[name] and not any(self._samples[n] for n in self._spent)
        return row * self.recipe.stages[name].rows * (SAMPLED if sampled else 1.0)

    def _note(self, record: Mapping[str, Any]) -> None:
        self.record = record
        if record["stage"] != self.stage:
            self.stage = record["stage"]
            self.rewards, self.entropies = [], []  # rewards of different stages are not comparable
        rounds = record.get("round", 1) - 1
        self.done[self.stage] = record["stage_step"] + 1
        if rounds and self.recipe is not None:
            self.done[self.stage] += rounds * self.recipe.stages[self.stage].steps
        if "reward/mean" in record:
            self.rewards.append(record["reward/mean"])
        if "entropy" in record:
            self.entropies.append(record["entropy"])

    def _lap(self) -> float:
        now = self.clock()
        lap, self._mark = now - self._mark, now
        return lap
