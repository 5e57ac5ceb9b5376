"""Offline methods on data that SAC recorded here: the return, by the number of updates.

python -m benchmarks.offline_curve --folder F     an hour of one core; a second call goes on from the first

For each seed `polopt train pendulum` stores what SAC plays until it has learned the task, and each method
then learns from these transitions alone. Results are in benchmarks/results/offline_curve.{json,md}.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import table
from benchmarks.methods import ROOT
from benchmarks.spec import HERE
from polopt import catalogue
from polopt.metrics import t_interval
from polopt.training import recipe as recipes
from polopt.training.control.transition_store import stored
from polopt.training.launch import train
from polopt.training.recipe import Recipe
from polopt.training.run import Run

RESULTS = HERE / "results" / "offline_curve"
SEEDS = (41, 42, 43, 44, 45)
# Steps of SAC's stage, of 32 transitions each; steps of a method's, of 32 updates each; steps between evaluations.
RECORDED, STEPS, EVERY = 300, 240, 60
# Method -> its settings, and the policy's head. Those that are not in this version are left out.
METHODS: dict[str, tuple[dict[str, Any], str]] = {
    "bc": ({}, "squashed_gaussian"),
    "td3-bc": ({"hidden": [64, 64]}, "deterministic"),
    "iql": ({"hidden": [64, 64]}, "squashed_gaussian"),
    "awac": ({"hidden": [64, 64]}, "squashed_gaussian"),
    "cql": ({"hidden": [64, 64]}, "squashed_gaussian"),
}
SHARED = {"threads": 1, "evaluation.problems": 20, "evaluation.quick": 20}


def recorded(seed: int, folder: Path) -> Path:
    """Trains SAC for a while, and returns the run that stored what it played."""
    run = folder / f"sac-{seed}"
    if not finished(run):
        shutil.rmtree(run, ignore_errors=True)
        changes = {"seed": seed, "stages.rl.steps": RECORDED, "evaluation.every": RECORDED, "checkpoint": RECORDED}
        train(recipes.load("pendulum", SHARED | changes), run)
    return run


def finished(run: Path) -> bool:
    """Whether a run has an evaluation after its last step."""
    file = run / "evaluations.jsonl"
    if not file.exists() or not (run / "recipe.yaml").exists():
        return False
    steps = [json.loads(line)["step"] for line in file.read_text(encoding="utf-8").splitlines()]
    return max(steps, default=0) >= min(RECORDED, STEPS)


def recipe_of(method: str, log: Path, seed: int) -> Recipe:
    """Returns the recipe by which a method learns from the transitions of a run alone."""
    settings, head = METHODS[method]
    spec = {"name": method, "batch": 8192, **settings}
    changes = {"seed": seed, "stages.rl.method": spec, "policy.head": head, "transitions": str(log)}
    changes |= {"stages.rl.steps": STEPS, "evaluation.every": EVERY, "checkpoint": STEPS}
    return recipes.load("pendulum", SHARED | changes)


def curve(method: str, seed: int, log: Path, folder: Path) -> list[tuple[int, float]]:
    """Learns from the log, and returns (updates, mean return) of each evaluation."""
    run = folder / f"{method}-{seed}"
    if not finished(run):
        shutil.rmtree(run, ignore_errors=True)
        train(recipe_of(method, log, seed), run)
    found = Run(run).read("evaluations")
    return [(32 * row["step"], row["return"]["estimate"]) for row in found]


def markdown(data: dict[str, Any]) -> str:
    it = data["about"]
    lines = ["# Offline methods on what SAC recorded", ""]
    lines += [f"{it['date']}, commit {it['commit']}, `{it['command']}`.", "", table.machine(it), ""]
    lines += [
        f"Pendulum-v1. For each of {len(SEEDS)} seeds SAC played {data['transitions']:,} transitions, with a mean "
        f"return of {data['log']:.0f} an episode of 200 of them; its policy at that point has {data['sac']}. Each "
        "method learns from them alone, with the same networks and steps. Mean return of 20 greedy episodes; mean over "
        "seeds and 95 % interval of Student's t.",
        "",
    ]
    updates = [str(count) for count, _ in next(iter(data["curves"].values()))]
    lines += ["|updates|" + "|".join(updates) + "|", "|---|" + "---:|" * len(updates)]
    lines += [f"|{method}|" + "|".join(cell for _, cell in points) + "|" for method, points in data["curves"].items()]
    return "\n".join(lines) + "\n"


def worded(values: list[float]) -> str:
    interval = t_interval(values)
    return f"{interval.estimate:.0f} [{interval.low:.0f}, {interval.high:.0f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the runs are kept")
    folder = parser.parse_args().folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    about = table.about(ROOT, threads=1, module="offline_curve") | {"command": "python -m benchmarks.offline_curve"}
    methods = [method for method in METHODS if method in catalogue.slugs()]
    curves: dict[str, list[list[tuple[int, float]]]] = {method: [] for method in methods}
    sac, logged, counts = [], [], []
    for seed in SEEDS:
        log = recorded(seed, folder)
        sac.append(Run(log).read("evaluations")[-1]["return"]["estimate"])
        kept = stored(log / "transitions-rl")
        counts.append(len(kept["reward"]))
        logged.append(200 * float(kept["reward"].mean()))
        for method in methods:
            curves[method].append(curve(method, seed, log, folder))
    found = {
        method: [(points[0][0], worded([value for _, value in points])) for points in zip(*curves[method], strict=True)]
        for method in methods
    }
    about["load_after"] = os.getloadavg()
    data = {"about": about, "transitions": int(np.mean(counts)), "log": float(np.mean(logged)), "sac": worded(sac)}
    data |= {"curves": found, "runs": curves, "seeds": SEEDS, "sac runs": sac}
    RESULTS.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    RESULTS.with_suffix(".md").write_text(markdown(data), encoding="utf-8")
    print(markdown(data))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
