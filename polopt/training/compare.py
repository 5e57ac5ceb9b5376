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

    processes: how many runs at once, the cores shared out among them. By default one per core, each of one thread:
        with models this small two such runs together took less time than one run of two threads.
    watch: is called several times a second with all trials.

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
    _train(trials, workers, folder, watch or (lambda _: None))
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
    # As it is written down: a tuple among a method's settings is a list there.
    if there.model_copy(update={"threads": recipe.threads}).to_yaml() != recipe.to_yaml():
        raise RunError(f"{folder} holds a run of another recipe: give the comparison another folder")
    return run


def _train(trials: Sequence[Trial], workers: int, folder: Path, watch: Callable[[Sequence[Trial]], None]) -> None:
    """Run what is not finished, `workers` at a time. Whatever ends this, no process stays behind."""
    for trial in trials:
        trial.state = "finished" if trial.run.about.get("finished") else "waiting"
    team: list[_Worker] = []
    try:
        while any(trial.state != "finished" for trial in trials):
            for worker in team:
                worker.look()
            waiting = [trial for trial in trials if trial.state == "waiting"]
            free = [worker for worker in team if worker.trial is None]
            if waiting and not free and len(team) < workers:
                free = [_Worker(folder / f"process-{len(team) + 1}.log")]
                team += free
            for trial, worker in zip(waiting, free, strict=False):
                worker.take(trial)
            watch(trials)
            time.sleep(PAUSE)
    finally:
        for worker in team:
            worker.process.terminate()
        for worker in team:
            worker.process.wait()
    watch(trials)


class TrialError(RunError):
    """One run of a comparison failed; `trial` says which. The others keep what they have done."""

    def __init__(self, message: str, trial: Trial) -> None:
        super().__init__(message)
        self.trial = trial


class _Worker:
    """A process that trains one run after another, so that the libraries are loaded once."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.trial: Trial | None = None
        # Not multiprocessing: that would run the caller's script again in each process.
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "polopt.training.compare"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the parent, which ends this one
            )

    def take(self, trial: Trial) -> None:
        self.trial, trial.state = trial, "running"
        assert self.process.stdin is not None
        self.process.stdin.write(f"{trial.run.folder}\n".encode())
        self.process.stdin.flush()

    def look(self) -> None:
        """Note a finished run.

        Raises:
            TrialError: the process ended before it.
        """
        ended = self.process.poll() is not None
        if self.trial is None:
            return
        if self.trial.run.about.get("finished"):
            self.trial.state, self.trial = "finished", None
        elif ended:
            last = (self.log.read_text(encoding="utf-8", errors="replace").splitlines() or ["it printed nothing"])[-1]
            failed = f"{self.trial.name} with seed {self.trial.seed} failed: {last} (all of it in {self.log})"
            raise TrialError(failed, self.trial)


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
    for line in sys.stdin:
        resume(line.rstrip("\n"), watchers=(_Orphan(),))
