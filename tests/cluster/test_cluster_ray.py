"""A Ray cluster of three simulated nodes on this machine: workers, a node and the learner die, and the run ends as it
would have."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster_runs import HereCrew
from tiny_runs import DIGITS, outcome, recipe, training_of

from polopt.training.cluster.worker_pool import ClusterError, WorkerPool
from polopt.training.language import LanguageDomain
from polopt.training.language_recipe import LanguageRecipe
from polopt.training.launch import create, resume
from polopt.training.run import Run

pytest.importorskip("ray")
# Simulated nodes share one machine: when it is busy they are slow to begin, and to be missed.
pytestmark = pytest.mark.flaky(reruns=2)


def settings(steps: int = 10, delay: float = 0.02, **cluster: Any) -> LanguageRecipe:
    warm = {"method": "sft", "steps": 12, "rows": 16, "optimiser": {"lr": 0.03}}
    tasks = {**DIGITS, "kind": DIGITS["kind"].replace(":digits", ":slow_digits"), "delay": delay}
    rl = {"method": "grpo", "steps": steps, "rows": 16, "group": 4, "optimiser": {"lr": 0.01}, "tasks": tasks}
    dealt = {"workers": 2, "shares": 3, "ahead": 1, **cluster}
    return recipe(stages={"warmup": warm, "rl": rl}, evaluation={"problems": 4}, cluster=dealt)


def undisturbed(made: LanguageRecipe, folder: Path) -> dict[str, Any]:
    """The same recipe without Ray and without accidents: each order played once, in this process."""
    training_of(made, create(made, folder), (), None, HereCrew(made)).run()  # type: ignore[arg-type]
    return steady(folder)


def steady(folder: Path) -> dict[str, Any]:
    """What a run leaves behind, without what depends on who died when."""
    found = outcome(folder)
    found["metrics"] = [{k: v for k, v in m.items() if not k.startswith("cluster/")} for m in found["metrics"]]
    return found


class Accidents:
    """A watcher that lets things happen while the shares of the steps after are played. at_once: things of the main
    thread's, which waits for them; there alone a node can begin."""

    def __init__(self, planned: dict[int, Callable[[], None]], at_once: dict[int, Callable[[], None]]) -> None:
        self.planned, self.at_once = planned, at_once

    def begin(self, recipe: Any, about: Any) -> None: ...
    def evaluation(self, record: Any) -> None: ...

    def step(self, record: Any) -> None:
        if record["step"] in self.planned:
            threading.Timer(0.1, self.planned[record["step"]]).start()
        if record["step"] in self.at_once:
            self.at_once[record["step"]]()


def test_workers_and_a_node_die(cluster: Any, added: Callable[[], Any], tmp_path: Path) -> None:
    """And the run ends with the same weights, metrics and order of tasks as one in which nobody did."""
    made = settings()
    expected = undisturbed(made, tmp_path / "whole")
    crew = WorkerPool(made, LanguageDomain)

    def kill() -> None:
        """Whoever is busy now."""
        while not (busy := [m for m in crew._members if m.ready and (m.order or 0) >= 0 and m.call is not None]):
            time.sleep(0.01)
        os.kill(int(re.search(r"process (\d+)", busy[0].place).group(1)), signal.SIGKILL)  # type: ignore[union-attr]

    second = added()
    lose = lambda: cluster.remove_node(second, allow_graceful=False)  # noqa: E731
    accidents = Accidents({13: kill}, {16: lose, 19: added})
    try:
        training = training_of(made, create(made, tmp_path / "run"), (accidents,), None, crew)
        training.run()
    finally:
        crew.close()
    assert steady(tmp_path / "run") == expected
    logged = outcome(tmp_path / "run")["metrics"]
    assert sum(m["cluster/died"] for m in logged) >= 2
    assert sum(m["cluster/again"] for m in logged) >= 1
    assert all(m["rows"] == 16 for m in logged)


def test_the_learner_dies(cluster: Any, tmp_path: Path) -> None:
    """`polopt train` is killed in the middle of a step, and `resume` ends where it would have."""
    made = settings(6, workers=1)
    expected = undisturbed(made, tmp_path / "whole")
    (tmp_path / "recipe.yaml").write_text(made.to_yaml())
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "polopt", "train", str(tmp_path / "recipe.yaml"), "--run", str(folder)]
    learner = subprocess.Popen(
        [*command, "--cluster", cluster.address], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    while not (folder / "recipe.yaml").is_file() or len(Run(folder).read("metrics")) < 15:
        assert learner.poll() is None, learner.communicate()[0].decode()
        time.sleep(0.05)
    learner.kill()
    learner.communicate()
    assert Run(folder).checkpoint
    assert not Run(folder).about["finished"]
    resume(folder, address=cluster.address)
    assert steady(folder) == expected


def test_what_a_worker_cannot_do(cluster: Any, tmp_path: Path) -> None:
    """A share that hangs is given up, and without workers the run ends in one sentence."""
    made = settings(2, 30.0, workers=1, seconds=0.5, attempts=1)
    with pytest.raises(ClusterError, match=r"1 workers were lost over one share of rollouts, .* taking too long"):
        with_crew(made, tmp_path / "hung")
    impossible = settings(2, workers=1, cpus=64.0, patience=1.0)
    with pytest.raises(ClusterError, match=r"no rollout worker for 1 s: the cluster has no node with 64 CPUs"):
        with_crew(impossible, tmp_path / "none")


def with_crew(made: LanguageRecipe, folder: Path) -> None:
    crew = WorkerPool(made, LanguageDomain)
    try:
        training_of(made, create(made, folder), (), None, crew).run()
    finally:
        crew.close()
