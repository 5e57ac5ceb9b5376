"""Comparisons of methods: one recipe, several seeds, each run in a folder of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from polopt.config import ConfigError
from polopt.metrics import Comparison, MethodRuns
from polopt.part_diff import diff
from polopt.training import recipe as recipes
from polopt.training.estimates import score_of, unit_of
from polopt.training.launch import create
from polopt.training.recipe import Recipe
from polopt.training.run import Run, RunError
from polopt.training.run_executor import ComparedRun, LocalExecutor, RunExecutor, train_all

Method = str | dict[str, Any]


def compare(
    methods: Sequence[Method],
    *,
    seeds: int,
    folder: Path | str | None = None,
    recipe: Path | str | None = None,
    changes: Mapping[str, Any] | None = None,
    processes: int | None = None,
    cluster: str | None = None,
    anytime: bool = False,
    watch: Callable[[Sequence[ComparedRun]], None] | None = None,
) -> Comparison:
    """Trains every method with seeds 0 to seeds - 1 and compares their held-out scores; the first is the yardstick.

    Rules that the recipe's evaluations play stand beside the methods.

    Everything but the last stage's method is the same. Runs of one seed begin with the same warm-up to the bit, so
    differences are paired by seed. `folder` (`default_folder` if None) gets a run folder each and comparison.json;
    called again, this function takes finished runs as they are and continues the others.

    processes: how many runs at once, the cores shared out among them. By default one per core, each of one thread: with
        models this small two such runs together took less time than one run of two threads.
    cluster: the address of a Ray cluster that trains them, "auto" or HOST:PORT, see `cluster.ray_executor.RayExecutor`.
        By default as many runs at once as it has CPUs, each of one thread.
    anytime: intervals that hold however often one looks and adds seeds, see `Comparison`.
    watch: called several times a second with all trials.

    Raises:
        ConfigError: the recipe or a method is wrong, or a name is given twice.
        RunError: the folder holds runs of another recipe, or a run failed.
    """
    folder = default_folder(methods) if folder is None else Path(folder)
    names = [label(m) for m in methods]
    if len(set(names)) != len(names):
        raise ConfigError(f"each method needs a name of its own, found {', '.join(names)}")
    if seeds < 1 or (processes is not None and processes < 1):
        raise ConfigError(f"a comparison needs seeds >= 1 and processes >= 1, found {seeds} and {processes}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = min(processes or cores, len(methods) * seeds)
    threads = max(1, cores // workers) if cluster is None else 1
    shared = {"threads": threads, **(changes or {})}
    planned = [
        (name, seed, recipes.load(recipe, {**shared, "seed": seed}, method=method))
        for seed in range(seeds)
        for name, method in zip(names, methods, strict=True)
    ]
    if cluster is None:  # a cluster's machines have packages of their own
        planned[0][2].require_installed()
    with _executor(folder, workers, processes, cluster) as executor:
        trials = [ComparedRun(n, s, r, _run(r, folder / f"{file_name(n)}-seed-{s}")) for n, s, r in planned]
        train_all(trials, executor, watch or (lambda _: None))
    comparison = Comparison(
        [_trials(name, [t for t in trials if t.name == name]) for name in names] + _rules(trials, names),
        unit=_unit(trials),
        anytime=anytime,
    )
    written = {**record(comparison), "about": about(trials)}
    (folder / "comparison.json").write_text(json.dumps(written, indent=1), encoding="utf-8")
    return comparison


def about(trials: Sequence[ComparedRun]) -> dict[str, Any]:
    """Describes a comparison as plain data: recipe, machine, and of each method its differences from the first, its
    cost and its runs. seconds, tokens (sampled), kinds (held-out accuracy): means over its runs."""
    first = trials[0]
    stage = first.recipe.main_stage
    baseline = first.recipe.algorithms[stage]
    methods: dict[str, Any] = {}
    for name in dict.fromkeys(trial.name for trial in trials):
        of = [trial for trial in trials if trial.name == name]
        algorithm = of[0].recipe.algorithms[stage]
        finals = [trial.run.read("evaluations")[-1].get("kinds", {}) for trial in of]
        methods[name] = {
            "diff": [[path or "all of it", repr(a), repr(b)] for path, a, b in diff(baseline, algorithm)],
            "seconds": mean(trial.run.about.get("seconds", 0.0) for trial in of),
            "tokens": mean(sum(m.get("sampled", 0) for m in trial.run.read("metrics")) for trial in of),
            "kinds": {kind: mean(final[kind]["estimate"] for final in finals) for kind in finals[0]},
            "runs": [trial.run.folder.name for trial in of],
        }
    return {"recipe": first.recipe.to_yaml(), "stage": stage, "run": first.run.about, "methods": methods}


def about_folder(folder: Path) -> dict[str, Any] | None:
    """Returns `about` of the comparison that was written in a folder; None where it holds none."""
    found: dict[str, Any] = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    return found.get("about")


@contextlib.contextmanager
def _executor(folder: Path, workers: int, processes: int | None, cluster: str | None) -> Iterator[RunExecutor]:
    if cluster is None:
        yield LocalExecutor(folder, workers)
        return
    from polopt.training.cluster.address import connected
    from polopt.training.cluster.ray_executor import RayExecutor

    with connected(cluster) as ray:
        yield RayExecutor(ray, folder, processes)


def record(comparison: Comparison) -> dict[str, Any]:
    """Returns plain data that `Comparison.from_dict` reads, with its table, and with the bands of its curves: by method
    a list of {step, estimate, low, high, level, n}; an endless interval's ends are null."""
    rows = [dataclasses.asdict(row) for row in comparison.table()]
    bands = {
        name: [{"step": step, **dataclasses.asdict(interval)} for step, interval in points]
        for name, points in comparison.bands().items()
    }
    return _finite({**dataclasses.asdict(comparison), "table": rows, "bands": bands})


def label(method: Method) -> str:
    """Returns a method's name with its settings: `rloo(kl=0)`."""
    if isinstance(method, str):
        return method
    settings = ", ".join(f"{k}={v}" for k, v in method.items() if k != "name")
    return f"{recipes.name_of_method(method)}({settings})"


def default_folder(methods: Sequence[Method]) -> Path:
    """Returns the default folder of a comparison of these methods, runs/compare-A-B."""
    return Path("runs") / f"compare-{'-'.join(file_name(label(m)) for m in methods)}"


def file_name(name: str) -> str:
    """Returns a method's label as part of a folder's name."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")


def _run(recipe: Recipe, folder: Path) -> Run:
    """Returns the run in a folder: the present one if it has this recipe, a new one if the folder has none.

    Raises:
        RunError: the folder holds a run of another recipe.
    """
    if not (folder / "recipe.yaml").is_file():
        return create(recipe, folder)
    run = Run.open(folder)
    # Threads may differ: half-finished runs go on with their own.
    there = recipes.load(run.recipe)
    # Compared as YAML: a tuple among a method's settings is read back as a list.
    if there.model_copy(update={"threads": recipe.threads}).to_yaml() != recipe.to_yaml():
        raise RunError(f"{folder} holds a run of another recipe: give the comparison another folder")
    return run


def _trials(name: str, trials: Sequence[ComparedRun]) -> MethodRuns:
    curves = [_curve(trial) for trial in trials]
    return MethodRuns(name, [t.seed for t in trials], [curve[-1][1] for curve in curves], curves)


def _rules(trials: Sequence[ComparedRun], names: Sequence[str]) -> list[MethodRuns]:
    """Returns the scores of the rules that the recipe's evaluations play, by seed; those beside the first method."""
    own = [trial for trial in trials if trial.name == names[0]]
    logs = [[e for e in t.run.read("evaluations") if e["stage"] == t.recipe.main_stage and "rules" in e] for t in own]
    found = []
    for rule in logs[0][-1]["rules"] if logs[0] else ():
        name = f"rule {rule}" if rule in names else rule
        curves = [[(e["step"], score_of(e["rules"][rule])[1]["estimate"]) for e in log] for log in logs]
        found.append(MethodRuns(name, [t.seed for t in own], [curve[-1][1] for curve in curves], curves))
    return found


def _unit(trials: Sequence[ComparedRun]) -> str:
    return unit_of(score_of(trials[0].run.read("evaluations")[-1])[1])


def _curve(trial: ComparedRun) -> list[tuple[float, float]]:
    """Returns (step, held-out score) of the last stage."""
    stage = trial.recipe.main_stage
    return [(e["step"], score_of(e)[1]["estimate"]) for e in trial.run.read("evaluations") if e["stage"] == stage]


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
