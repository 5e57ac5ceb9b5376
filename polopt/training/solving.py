"""Runs of solvers: from a recipe to a folder that survives interruptions, and their continuation."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import torch
import yaml

from polopt.errors import RunError
from polopt.problems import ExactProblem
from polopt.solvers import Solver
from polopt.training import files, origin
from polopt.training.recipe import name_of_method
from polopt.training.run import Run
from polopt.training.solve_recipe import SolveRecipe


class SolveWatcher(Protocol):
    """An observer that is called while a solver runs, after each measurement."""

    def begin(self, recipe: SolveRecipe, step: int) -> None:
        """Called once, before the first iteration. step: the number of iterations that a resumed run has done."""

    def measured(self, record: Mapping[str, Any]) -> None:
        """Called after each measurement with its record, as written to metrics.jsonl."""


def is_finished(recipe: SolveRecipe, folder: Path) -> bool:
    """Returns whether a folder holds a run of this recipe that has come to its end; False if it holds none.

    Raises:
        RunError: it holds a run of another recipe; the first settings that differ.
    """
    return Run.exists(folder) and not _more(Run.open(folder), recipe) and bool(Run.open(folder).about.get("finished"))


def solve(
    recipe: SolveRecipe, folder: Path | str, *, watchers: tuple[SolveWatcher, ...] = (), anyway: bool = False
) -> Run:
    """Solves a problem in a folder. An existing run of the same recipe goes on from its last checkpoint, to the bits
    that it would have had without the interruption; with more steps than it had, it is extended.

    anyway: go on although polopt, a library or a file that the recipe names has changed since it began.

    Raises:
        RunError: the folder holds a run of another recipe, something has changed, or another process works there.
    """
    folder = Path(folder).absolute()
    solver, problem = recipe.parts()
    if not Run.exists(folder):
        Run.vacant(folder).folder.mkdir(parents=True, exist_ok=True)
    run = Run(folder)
    with run.exclusive():
        if Run.exists(folder):
            _continue(run, recipe, anyway=anyway)
        else:
            about = origin.record(recipe.to_yaml(), folder)
            about |= {"started": datetime.now(UTC).isoformat(timespec="seconds"), "threads": torch.get_num_threads()}
            about |= {"method": name_of_method(recipe.method), "problem": problem.name, "unit": problem.unit}
            Run.create(folder, recipe.to_yaml(), {**about, "finished": False})
        torch.set_num_threads(run.about.get("threads", torch.get_num_threads()))
        _iterate(run, recipe, solver, problem, watchers, with_logs=not anyway)
    return run


def _continue(run: Run, recipe: SolveRecipe, *, anyway: bool) -> None:
    """Prepares an existing run to go on with this recipe."""
    more = _more(run, recipe)
    if changed := origin.require_unchanged(run, anyway=anyway):
        run.describe(run.about | origin.accept(run, changed))
    if more:
        before, text = run.recipe.read_text(encoding="utf-8"), recipe.to_yaml()
        about = {"recipe_before": before, "recipe": text, "recipe_sha256": files.digest_of(text), "finished": False}
        run.describe(about)
        files.write_text(run.recipe, text)  # a process killed before this line leaves the run as it was


def _more(run: Run, recipe: SolveRecipe) -> bool:
    """Returns whether the recipe is that of the run with more steps; False if it is the same.

    Raises:
        RunError: it is another one.
    """
    there = yaml.safe_load(run.recipe.read_text(encoding="utf-8"))
    found = origin.changed_settings(there, yaml.safe_load(recipe.to_yaml()))
    more = [name for name, _, _ in found] == ["steps"] and recipe.steps > there["steps"]
    if found and not more:
        listed = ", ".join(origin.shown(*each) for each in found[:3])
        raise RunError(f"{run.folder} holds a run of another recipe: {listed}; name another folder")
    return more


def _iterate(
    run: Run,
    recipe: SolveRecipe,
    solver: Solver,
    problem: ExactProblem,
    watchers: tuple[SolveWatcher, ...],
    *,
    with_logs: bool,
) -> None:
    found = run.restore(with_logs=with_logs)
    state = found.tensors if found else solver.begin(problem)
    first, before = (found.step, found.state["seconds"]) if found else (0, 0.0)
    start = time.perf_counter()
    for watcher in watchers:
        watcher.begin(recipe, first)
    for step in range(first + 1, recipe.steps + 1):
        state = solver.iterate(problem, state)
        seconds, last = before + time.perf_counter() - start, step == recipe.steps
        if last or step % recipe.measure_every == 0:
            measures = problem.measure(solver.solution(problem, state))
            record = {"step": step, **measures, "unit": problem.unit, "seconds": seconds}
            run.log("metrics", record)
            for watcher in watchers:
                watcher.measured(record)
        if last or step % recipe.checkpoint_every == 0:
            run.save(step, state, {"seconds": seconds})
    files.write_text(run.folder / "solution.json", json.dumps(problem.table(solver.solution(problem, state)), indent=1))
    run.describe({"finished": True, "seconds": before + time.perf_counter() - start})
