"""Comparisons and claims on a Ray cluster of two simulated nodes: what they are on one machine, whatever dies."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import waiting
from tiny_runs import lines, outcome, recipe
from typer.testing import CliRunner

from polopt import evidence
from polopt.cli.app import app
from polopt.config import ConfigError
from polopt.training.cluster import ray_executor
from polopt.training.compare import compare
from polopt.training.launch import create
from polopt.training.run import RunError
from polopt.training.run_executor import ComparedRun, TrialError
from polopt.training.spread import spread_over

ray = pytest.importorskip("ray")
# Simulated nodes share one machine: when it is busy they are slow to begin, and to be missed.
pytestmark = pytest.mark.flaky(reruns=2)
METHODS = ("grpo", "rloo")
SFT = {"method": "sft", "steps": 4, "rows": 8, "optimiser": {"lr": 0.02}}
RL = {"method": "grpo", "steps": 3, "rows": 8, "group": 4}
SHORT = {"stages": {"sft": SFT, "rl": RL}, "checkpoint": 1}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "tiny.yaml"
    path.write_text(recipe(**SHORT).to_yaml())
    return path


def deadly(marks: Path, dies: bool, wait: float = 0.0) -> dict[str, Any]:
    """A world in which, if it dies, one process ends in the middle of the third step."""
    marks.mkdir()
    if not dies:
        (marks / "died").touch()
    world = {"kind": f"{waiting.__file__}:mortal", "marks": str(marks), "wait": wait}
    return {"tasks": {**world, "after": 2 * 8 + 4}, "threads": 1}


@pytest.fixture(scope="module")
def here(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The comparison by processes of this machine."""
    folder = tmp_path_factory.mktemp("here")
    changes = deadly(folder / "marks", dies=False)
    compare(METHODS, seeds=1, folder=folder, recipe=source, processes=1, changes=changes)
    return folder


def same(folder: Path, here: Path) -> None:
    first, second = (json.loads((place / "comparison.json").read_text()) for place in (folder, here))
    first.pop("about")  # clock times, and where it ran
    second.pop("about")
    assert first == second
    for name in METHODS:
        assert outcome(folder / f"{name}-seed-0") == outcome(here / f"{name}-seed-0")


def test_a_process_that_dies_and_a_node_that_goes_change_nothing(
    cluster: Any, added: Callable[[], Any], source: Path, here: Path, tmp_path: Path
) -> None:
    """Two runs on two nodes. One process ends in the middle of a step; and when both have got further, a node goes."""
    node = added()
    removed: list[threading.Thread] = []
    deaths: dict[str, int] = {}

    def watch(trials: Sequence[ComparedRun]) -> None:
        deaths.update({t.name: t.deaths for t in trials})
        far = [t.state == "finished" or (t.run.checkpoint or 0) >= 3 for t in trials]
        if not removed and all(far):
            removed.append(threading.Thread(target=cluster.remove_node, args=(node, False)))
            removed[0].start()

    changes = deadly(tmp_path / "marks", dies=True)
    compare(METHODS, seeds=1, folder=tmp_path, recipe=source, cluster="auto", changes=changes, watch=watch)
    removed[0].join()
    same(tmp_path, here)
    assert 1 <= sum(deaths.values()) <= 2
    for name in METHODS:
        assert [record["step"] for record in lines(tmp_path / f"{name}-seed-0", "metrics")] == list(range(7))


def test_stopped_it_goes_on(cluster: Any, source: Path, here: Path, tmp_path: Path) -> None:
    class Enough(KeyboardInterrupt):
        pass

    def watch(trials: Sequence[ComparedRun]) -> None:
        if (trials[0].run.checkpoint or 0) >= 1:
            raise Enough

    whole = {"seeds": 1, "folder": tmp_path, "recipe": source, "changes": deadly(tmp_path / "marks", False, 0.1)}
    with pytest.raises(Enough):
        compare(METHODS[:1], cluster="auto", watch=watch, **whole)
    time.sleep(1.0)  # for whoever might still write
    left = lines(tmp_path / "grpo-seed-0", "metrics")
    time.sleep(0.5)
    assert lines(tmp_path / "grpo-seed-0", "metrics") == left
    assert len(left) < 7
    compare(METHODS[:1], cluster="auto", **whole)
    assert outcome(tmp_path / "grpo-seed-0") == outcome(here / "grpo-seed-0")


def test_a_run_that_fails_says_why(cluster: Any, source: Path, tmp_path: Path) -> None:
    changes = {"policy.config": {"model_type": "gpt2", "n_embed": 3}}
    with pytest.raises(TrialError, match=r"grpo with seed 0 failed: .*n_embed is not a setting"):
        compare(["grpo"], seeds=1, folder=tmp_path, recipe=source, cluster="auto", changes=changes)


def test_a_folder_that_a_node_does_not_see_is_refused(
    cluster: Any, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_executor, "_take_over", lambda folder: "a name that never reaches the disk")
    with pytest.raises(ConfigError, match=r"does not see .* a file system that all nodes share"):
        compare(METHODS, seeds=1, folder=tmp_path / "c", recipe=source, cluster="auto")
    assert not list((tmp_path / "c").iterdir())


def test_two_cannot_go_on_with_one_run(tmp_path: Path, source: Path) -> None:
    """A process that nobody could stop finds that its run has been given to another, and writes no more."""
    run = create(recipe(**SHORT), tmp_path / "run")
    first = ray_executor._take_over(run.folder)
    ray_executor._take_over(run.folder)
    with pytest.raises(RunError, match="assigned it to another process"):
        ray_executor._train(str(run.folder), first, str(tmp_path), [])
    assert run.read("metrics") == []


def test_claims_come_in_the_order_of_the_catalogue(cluster: Any) -> None:
    """The slower claim first: its place does not change, nor does what it measured."""
    planned = evidence.planned_claims(["rloo", "gspo"], "fast")
    assert len(planned) > 1
    with spread_over("auto") as spread:
        far = list(spread(evidence.run_claim, planned))
    near = [evidence.run_claim(which) for which in planned]
    assert [(row.slug, row.name, row.measured, row.holds) for row in far] == [
        (row.slug, row.name, row.measured, row.holds) for row in near
    ]


def test_the_command_spreads_claims_and_keeps_their_order(cluster: Any) -> None:
    result = CliRunner().invoke(app, ["claims", "rloo", "gspo", "--fast", "--json", "--cluster", "auto"])
    assert result.exit_code == 0, result.output
    rows = [(row["slug"], row["name"]) for row in json.loads(result.stdout)]
    assert rows == evidence.planned_claims(["rloo", "gspo"], "fast")


def sleepy(piece: float) -> float:
    time.sleep(piece)
    return piece


def test_pieces_keep_their_order_and_errors_their_names(cluster: Any) -> None:
    with spread_over("auto") as spread:
        assert list(spread(sleepy, [0.5, 0.0, 0.2])) == [0.5, 0.0, 0.2]
        assert list(spread(sleepy, [0.1])) == [0.1]
        with pytest.raises(ValueError, match="sleep length"):
            list(spread(sleepy, [0.0, -1.0]))
