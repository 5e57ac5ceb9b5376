"""Methods against each other: one recipe, several seeds, each run in a folder and a process of its own."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from polopt.config import ConfigError
from polopt.metrics import Comparison, Trials
from polopt.training import recipe as recipes
from polopt.training.language import create, resume
from polopt.training.recipe import Recipe
from polopt.training.run import Run, RunError

Method = str | dict[str, Any]

# Seconds between looks at the processes.
PAUSE = 0.25


@dataclasses.dataclass
class Trial:
    """One method's run with one seed."""

    name: str
    seed: int
    recipe: Recipe
    run: Run
    state: Literal["waiting", "running", "finished"] = "waiting"


def compare(
    methods: Sequence[Method],
    *,
    seeds: int,
    folder: Path | str,
    recipe: Path | str | None = None,
    changes: Mapping[str, Any] | None = None,
    processes: int | None = None,
    watch: Callable[[Sequence[Trial]], None] | None = None,
) -> Comparison:
    """Train every method with seeds 0 to seeds - 1 and compare their held-out accuracy; the first is the yardstick.

    Everything but the last stage's method is the same. Runs of one seed begin with the same warm-up to the bit,
    so differences are paired by seed. `folder` gets a run folder each and comparison.json; called again it
    takes finished runs as they are and continues the others.

    processes: how many runs at once, the cores shared out among them; by default one per core.
    watch: called several times a second with all trials.

    Raises:
        ConfigError: the recipe or a method is wrong, or a name is given twice.
        RunError: the folder holds runs of another recipe, or a run failed.
    """
    folder = Path(folder)
    names = [label(m) for m in methods]
    if len(set(names)) != len(names):
        raise ConfigError(f"each method needs a name of its own, found {', '.join(names)}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = min(processes or cores, len(methods) * seeds)
    if workers < 1:
        raise ConfigError(f"a comparison needs seeds >= 1 and processes >= 1, found {seeds} and {processes}")
    shared = {"threads": max(1, cores // workers), **(changes or {})}
    planned = [
        (name, seed, recipes.load(recipe, {**shared, "seed": seed}, method=method))
        for seed in range(seeds)
        for name, method in zip(names, methods, strict=True)
    ]
    trials = [Trial(n, s, r, _run(r, folder / f"{file_name(n)}-seed-{s}")) for n, s, r in planned]
    _train(trials, workers, shared["threads"], watch or (lambda _: None))
    comparison = Comparison([_trials(name, [t for t in trials if t.name == name]) for name in names])
    (folder / "comparison.json").write_text(json.dumps(record(comparison), indent=1), encoding="utf-8")
    return comparison


def record(comparison: Comparison) -> dict[str, Any]:
    """Plain data that `Comparison.from_dict` reads, with its table; an endless interval's ends are null."""
    rows = [dataclasses.asdict(row) for row in comparison.table()]
    return _finite({**dataclasses.asdict(comparison), "table": rows})


def label(method: Method) -> str:
    """A method's name with its settings: `rloo(kl=0)`."""
    if isinstance(method, str):
        return method
    settings = ", ".join(f"{k}={v}" for k, v in method.items() if k != "name")
    return f"{recipes.name_of_method(method)}({settings})"


def file_name(name: str) -> str:
    """A method's label as part of a folder's name."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")


def _run(recipe: Recipe, folder: Path) -> Run:
    """The run's folder: as it is if it holds this recipe, new if it holds none."""
    if not (folder / "recipe.yaml").is_file():
        return create(recipe, folder)
    run = Run.open(folder)
    # Threads may differ: half-finished runs go on with their own.
    there = recipes.load(run.recipe)
    if there.model_copy(update={"threads": recipe.threads}) != recipe:
        raise RunError(f"{folder} holds a run of another recipe: give the comparison another folder")
    return run


def _train(trials: Sequence[Trial], workers: int, threads: int, watch: Callable[[Sequence[Trial]], None]) -> None:
    """Run what is not finished, `workers` at a time. Whatever ends this, no process stays behind."""
    running: dict[int, subprocess.Popen[bytes]] = {}
    for trial in trials:
        trial.state = "finished" if trial.run.about.get("finished") else "waiting"
    try:
        while any(trial.state != "finished" for trial in trials):
            for i, trial in enumerate(trials):
                if i in running and running[i].poll() is not None:
                    _check(trial, running.pop(i).returncode)
                    trial.state = "finished"
                if trial.state == "waiting" and len(running) < workers:
                    running[i] = _start(trial, threads)
                    trial.state = "running"
            watch(trials)
            time.sleep(PAUSE)
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait()
    watch(trials)


def _start(trial: Trial, threads: int) -> subprocess.Popen[bytes]:
    # Not multiprocessing: that would run the caller's script again in each process.
    with (trial.run.folder / "process.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "polopt.training.compare", str(trial.run.folder)],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the parent, which ends this one
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        )


def _check(trial: Trial, code: int) -> None:
    if code:
        log = trial.run.folder / "process.log"
        last = (log.read_text(encoding="utf-8", errors="replace").splitlines() or ["nothing was printed"])[-1]
        raise RunError(f"{trial.name} with seed {trial.seed} failed: {last} (all of it in {log})")


def _trials(name: str, trials: Sequence[Trial]) -> Trials:
    curves = [_curve(trial) for trial in trials]
    return Trials(name, [t.seed for t in trials], [curve[-1][1] for curve in curves], curves)


def _curve(trial: Trial) -> list[tuple[float, float]]:
    """(step, held-out accuracy) of the last stage."""
    stage = trial.recipe.main_stage
    return [(e["step"], e["pass@1"]["estimate"]) for e in trial.run.read("evaluations") if e["stage"] == stage]


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class _Orphan:
    """Ends the process once the one that started it is gone, so that nobody else writes into the folder."""

    def __init__(self) -> None:
        self.parent = os.getppid()

    def begin(self, *_: Any) -> None:
        self._look()

    def step(self, *_: Any) -> None:
        self._look()

    def evaluation(self, *_: Any) -> None:
        self._look()

    def _look(self) -> None:
        if os.getppid() != self.parent:
            sys.exit("the comparison that started this run is gone")


if __name__ == "__main__":
    resume(sys.argv[1], watchers=(_Orphan(),))
