"""Runs of solvers: killed at any iteration and continued, they end with the same bytes."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import alone

from polopt.config import ConfigError
from polopt.errors import RunError
from polopt.training import solving
from polopt.training.run import Run
from polopt.training.solve_recipe import SolveRecipe, recipe_of

SETTINGS = {"steps": 23, "measure_every": 2, "checkpoint_every": 5}


def recipe(method: Any = "cfr-plus", problem: Any = "kuhn-poker", **changes: Any) -> SolveRecipe:
    return recipe_of(method, problem, {**SETTINGS, **changes})


def end_of(run: Run) -> tuple[dict[str, torch.Tensor], list[dict], str]:
    """State, measurements without clock times, and the solution's text."""
    records = [{k: v for k, v in r.items() if k != "seconds"} for r in run.read("metrics")]
    return run.tensors(), records, (run.folder / "solution.json").read_text()


def assert_same_end(one: Run, two: Run) -> None:
    (a, records, text), (b, again, text_again) = end_of(one), end_of(two)
    assert a.keys() == b.keys() == {"regret", "average", "strategy", "iteration"}
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert records == again
    assert text == text_again


class Stop(Exception):
    pass


class Stopper:
    def __init__(self, step: int) -> None:
        self.at, self.begun = step, -1

    def begin(self, recipe: SolveRecipe, step: int) -> None:
        self.begun = step

    def measured(self, record: Any) -> None:
        if record["step"] == self.at:
            raise Stop


@pytest.mark.parametrize("problem", ["kuhn-poker", {"name": "leduc-poker", "ranks": 2}])
@pytest.mark.parametrize("method", ["cfr", "cfr-plus"])
def test_a_run_that_is_stopped_ends_as_one_that_was_not(tmp_path: Path, method: str, problem: Any) -> None:
    straight = solving.solve(recipe(method, problem), tmp_path / "straight")
    for stop, begun in ((4, 0), (12, 10), (22, 20)):
        with pytest.raises(Stop):
            solving.solve(recipe(method, problem), tmp_path / "stopped", watchers=(Stopper(stop),))
        stopper = Stopper(-1)
        if stop == 22:
            solving.solve(recipe(method, problem), tmp_path / "stopped", watchers=(stopper,))
            assert stopper.begun == begun
    assert_same_end(straight, Run(tmp_path / "stopped"))
    assert straight.about["finished"]
    assert [r["step"] for r in straight.read("metrics")] == [*range(2, 23, 2), 23]
    assert {r["unit"] for r in straight.read("metrics")} == {"chips"}


@pytest.mark.parametrize(
    ("method", "problem"),
    [
        ({"name": "vad-cfr-shor-psro", "warm_start": 9}, "kuhn-poker"),
        ({"name": "aod-cfr", "horizon": 9}, "kuhn-poker"),
        ({"name": "psro", "train_meta": {"part": "solvers.NashLP"}}, "kuhn-poker"),
        ({"name": "hiring-agents", "model": {"part": "solvers.ExploredSignals"}}, "hiring"),
    ],
    ids=str,
)
def test_memories_populations_and_counts_are_resumed(tmp_path: Path, method: Any, problem: str) -> None:
    straight = solving.solve(recipe(method, problem), tmp_path / "straight")
    with pytest.raises(Stop):
        solving.solve(recipe(method, problem), tmp_path / "stopped", watchers=(Stopper(12),))
    stopper = Stopper(-1)
    (a, *records), (b, *again) = (
        end_of(run)
        for run in (straight, solving.solve(recipe(method, problem), tmp_path / "stopped", watchers=(stopper,)))
    )
    assert stopper.begun == 10
    assert a.keys() == b.keys() >= {"iteration"}
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert records == again


class Killer(Stopper):
    def measured(self, record: Any) -> None:
        if record["step"] == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


def test_processes_that_are_killed_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a measurement, and while a checkpoint is written."""
    settings, folder = recipe(problem="leduc-poker"), tmp_path / "killed"
    straight = solving.solve(settings, tmp_path / "straight")
    for step in (2, 8, 22):
        assert alone(lambda at=step: solving.solve(settings, folder, watchers=(Killer(at),))) == -signal.SIGKILL
    assert not Run(folder).about["finished"]
    assert Run(folder).checkpoint == 20
    with monkeypatch.context() as patch:
        patch.setattr("polopt.training.files.write_tensors", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        assert alone(lambda: solving.solve(settings, folder)) == -signal.SIGKILL
    assert Run(folder).checkpoint == 20
    solving.solve(settings, folder)
    assert_same_end(straight, Run(folder))


def test_more_steps_extend_a_run(tmp_path: Path) -> None:
    short, long = recipe(), recipe(steps=40)
    run = solving.solve(short, tmp_path / "run")
    assert solving.is_finished(short, tmp_path / "run")
    assert not solving.is_finished(long, tmp_path / "run")
    solving.solve(long, tmp_path / "run")
    assert solving.is_finished(long, tmp_path / "run")
    whole = solving.solve(long, tmp_path / "whole")
    assert all(torch.equal(x, run.tensors()[name]) for name, x in whole.tensors().items())
    with pytest.raises(RunError, match="another recipe: steps 40 -> 23; name another folder"):
        solving.solve(short, tmp_path / "run")
    with pytest.raises(RunError, match="another recipe: method cfr-plus -> cfr, steps"):
        solving.is_finished(recipe("cfr"), tmp_path / "run")


def test_a_run_whose_recipe_was_edited_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        solving.solve(recipe(), tmp_path / "run", watchers=(Stopper(12),))
    file = tmp_path / "run" / "recipe.yaml"
    file.write_text(file.read_text().replace("measure_every: 2", "measure_every: 3"))
    with pytest.raises(RunError, match="measure_every 2 -> 3"):
        solving.solve(recipe(measure_every=3), tmp_path / "run")
    solving.solve(recipe(measure_every=3), tmp_path / "run", anyway=True)
    assert Run(tmp_path / "run").about["anyway"][0]["step"] == 10


@pytest.mark.parametrize(
    ("method", "problem", "changes", "sentence"),
    [
        ("cfr", "poker", {}, "there is no problem 'poker'"),
        ("cfrr", "kuhn-poker", {}, "there is no method 'cfrr'"),
        ("grpo", "kuhn-poker", {}, "'grpo' is an algorithm, expected a solver; run it as polopt train --method grpo"),
        ("cfr", "kuhn-poker", {"steps": 0}, r"solve.steps = 0: expected greater than or equal to 1"),
        ("cfr", "kuhn-poker", {"stepz": 3}, "solve.stepz is not a setting; did you mean 'steps'"),
        ("cfr", "kuhn-poker", {"method.delay": 3}, "method 'cfr' has no setting 'delay'"),
        ("cfr", "kuhn-poker", {"problem.suits": 3}, "problem 'kuhn-poker' has no setting 'suits'"),
        ("cfr", "kuhn-poker", {"but.averag": 3}, "has no setting 'averag'; did you mean 'average'"),
    ],
)
def test_bad_recipes_are_refused(method: str, problem: str, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        recipe_of(method, problem, changes)


def test_settings_reach_method_problem_and_parts() -> None:
    changes = {"method.delay": 7, "problem.ranks": 4, "but.alternating": False}
    solver, problem = recipe(**changes).parts()
    assert (solver.average.delay, solver.alternating) == (7, False)  # type: ignore[attr-defined, union-attr]
    assert len(problem.information) == 16  # type: ignore[attr-defined]
    assert recipe(**changes).method == {"name": "cfr-plus", "delay": 7}


def test_a_folder_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be a run's folder"):
        solving.solve(recipe(), tmp_path / "file" / "run")
