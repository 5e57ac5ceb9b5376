"""Methods on three tasks of different kind, each with its own best of three step sizes, over five seeds.

python -m benchmarks.tuned --folder F                 every method that the results lack; continued when stopped
python -m benchmarks.tuned --folder F --only dapo rloo --tasks chains      these, whether they have results or not

A method's step size is chosen by the mean held-out accuracy of two runs, with seeds that do not count. The comparison
is made on five others, seed by seed with GRPO at its own best step size: after as many batches, and after as many
sampled tokens, or turns where an answer takes several. The runs of one seed begin with the same warm-up, which is
trained once, and have the same order of tasks. Results are in benchmarks/results/tuned.{json,md}, written after each
method: what is there stays, with the commit and the machine that it was measured with, and GRPO's curves are kept, so
that other days and other machines may add methods.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import table
from benchmarks.curves import curve
from benchmarks.methods import ROOT, YARDSTICK, contestants, reads_texts
from benchmarks.spec import HERE
from benchmarks.suites import CHAINS
from polopt.metrics import Comparison, MethodRuns
from polopt.training import recipe as recipes
from polopt.training.launch import create
from polopt.training.recipe import Recipe
from polopt.training.run import Run
from polopt.training.run_executor import ComparedRun, LocalExecutor, TrialError, train_all

RESULTS = HERE / "results" / "tuned"
# What was spent and held-out accuracy at each evaluation.
Curve = tuple[list[float], list[float]]
FACTORS = (1 / 3, 1.0, 3.0)  # of the recipe's learning rate
TRIALS, SEEDS = (100, 101), (0, 1, 2, 3, 4)
RATE = 5e-4
BUDGET: dict[str, Any] = {
    "stages.rl.steps": 30,
    "stages.rl.rows": 128,
    "evaluation.every": 6,
    "evaluation.quick": 200,
    "checkpoint": 1000,
    "threads": 1,
}
SEARCH: dict[str, Any] = {
    "tasks": {"kind": "retrieval", "hops": [1, 2], "turns": 4, "train": 20000, "heldout": 400},
    "policy.words": 0.004,
    "policy.config.n_positions": 256,
    "policy.config.n_embd": 96,
    "policy.config.n_head": 4,
    "limit": 16,
    "stages.warmup.steps": 450,
    "stages.warmup.rows": 32,
}
TASKS: dict[str, dict[str, Any]] = {
    "forms": {},
    "chains": {"tasks": CHAINS, "limit": 18, "stages.warmup.steps": 160},
    "search": SEARCH,
}
WHAT = {
    "forms": "words to spell backwards, palindromes, matrices to turn and to unroll: short answers of a fixed form",
    "chains": "words to rearrange in 1 to 3 steps, which may be written out: answers of different length",
    "search": "questions of 1 and 2 hops on fictional facts, answered with a search engine in up to 4 turns; held-out "
    "questions are on other facts",
}
# Task -> the second budget at which methods are compared, one of `benchmarks.curves.SPENT`.
UNITS = {"forms": "tokens", "chains": "tokens", "search": "turns"}
# Task -> methods that are measured on it where none is named; all that can be trained elsewhere.
CHOSEN = {
    "search": [
        "gigpo",
        "rloo",
        "hgpo",
        "loop",
        "salt",
        "iterresearch-eapo",
        "epo",
        "empg",
        "arpo-replay",
        "aspo-tir",
        "otc",
        "gspo",
        "reinforce-baseline",
        "ppo",
        "dapo",
    ]
}


def method_of(slug: str) -> str | dict[str, Any]:
    return dict(YARDSTICK) if slug == "grpo" else slug


def planned(slug: str, task: str, factor: float, seed: int, folder: Path) -> ComparedRun:
    """The run of a method at a step size with a seed: the one that the folder has, or a new one."""
    changes = {**BUDGET, **TASKS[task], "seed": seed, "stages.rl.optimiser.lr": RATE * factor}
    recipe = recipes.load(None, changes, method=method_of(slug))
    place = folder / task / f"{slug}-{factor:.2g}-{seed}"
    if (place / "recipe.yaml").is_file():
        return ComparedRun(slug, seed, recipe, Run.open(place))
    warmed = warm_run(folder / task, seed)
    if slug != "grpo" and not has_critic(recipe) and warmed is not None:
        begin_as(warmed, place, recipe.stages["warmup"].steps)
    return ComparedRun(slug, seed, recipe, create(recipe, place))


def has_critic(recipe: Recipe) -> bool:
    """Whether a critic is learned, which the weights of the warm-up then hold too."""
    return any("value" in a.required_fields | a.required_outputs for a in recipe.algorithms.values())


def warm_run(folder: Path, seed: int) -> Path | None:
    """The folder of GRPO's finished run with this seed, whose warm-up is everyone's."""
    found = [place for place in sorted(folder.glob(f"grpo-*-{seed}")) if Run.open(place).about.get("finished")]
    return found[0] if found else None


def begin_as(source: Path, place: Path, step: int) -> None:
    """Copies a run's checkpoint of a step, and its logs, which are cut back to that step when it goes on."""
    shutil.copytree(source / "checkpoints" / f"{step:08d}", place / "checkpoints" / f"{step:08d}")
    for log in source.glob("*.jsonl"):
        shutil.copy(log, place)


def lighten(run: Run) -> None:
    """Removes what is not read again of a run that has finished: the checkpoints and the policy."""
    for name in ("checkpoints", "policy"):
        shutil.rmtree(run.folder / name, ignore_errors=True)


def finished(runs: Sequence[ComparedRun], folder: Path, processes: int) -> dict[str, str]:
    """Trains the runs; why the methods failed that did, whose other runs are left as they are."""
    failed: dict[str, str] = {}
    seen: set[int] = set()
    logs = folder / f"logs-{os.getpid()}"  # two of these programs may share the folder
    logs.mkdir(exist_ok=True)

    def report(trials: Sequence[ComparedRun]) -> None:
        for trial in trials:
            if trial.state == "finished" and id(trial) not in seen:
                seen.add(id(trial))
                if trial.name != "grpo":
                    lighten(trial.run)
                print(f"{len(seen)} of {len(trials)}: {trial.run.folder.name}", flush=True)

    while True:
        left = [run for run in runs if run.name not in failed]
        try:
            train_all(left, LocalExecutor(logs, processes), report)
            return failed
        except TrialError as error:
            failed[error.trial.name] = str(error).partition(" (all of it")[0]


def final(run: ComparedRun) -> float:
    return float(curve(run.run, "tokens")[1][-1])  # accuracy is the same whatever was spent


def best_factor(runs: dict[float, list[ComparedRun]]) -> float:
    """The step size of the best mean accuracy."""
    return max(sorted(runs), key=lambda factor: float(np.mean([final(run) for run in runs[factor]])))


def at_equal(base: Curve, other: Curve) -> tuple[float, float]:
    """Returns what both had reached when they had spent as much as the one that spent less."""
    budget = min(spent[-1] for spent, _ in (base, other))
    one, two = (float(np.interp(budget, spent, accuracy)) for spent, accuracy in (base, other))
    return one, two


def record_of(factor: float, curves: Sequence[Curve], yardstick: Sequence[Curve] | None) -> dict[str, Any]:
    """What is kept of a method: step size, accuracy and curves by seed, and the difference to the yardstick at equal
    spending, None for the yardstick itself."""
    spent = [budget[-1] for budget, _ in curves]
    found: dict[str, Any] = {"factor": factor, "finals": [accuracy[-1] for _, accuracy in curves]}
    found |= {"spent": float(np.mean(spent)), "at equal": None, "curves": curves}
    if yardstick is not None and min(spent) > 0:
        pairs = zip(*(at_equal(base, other) for base, other in zip(yardstick, curves, strict=True)), strict=True)
        sides = [MethodRuns(side, SEEDS, values) for side, values in zip("ab", pairs, strict=True)]
        found["at equal"] = dataclasses.asdict(Comparison(sides).table()[1])["difference"]
    return found


def compared(methods: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The table of one task: accuracy, and the difference to GRPO at equal batches and at equal spending."""
    names = ["grpo", *(name for name in methods if name != "grpo")]
    batches = Comparison([MethodRuns(name, SEEDS, methods[name]["finals"]) for name in names]).table()
    return [{**dataclasses.asdict(row), **methods[name]} for row, name in zip(batches, names, strict=True)]


def shared_variance(rows: Sequence[dict[str, Any]]) -> float:
    """The variance of paired differences over that of unpaired ones, mean over all pairs of methods: below 1 where runs
    of one seed share their luck."""
    table_ = np.array([row["finals"] for row in rows])
    first, second = np.triu_indices(len(table_), 1)
    paired = (table_[first] - table_[second]).var(axis=1, ddof=1)
    single = table_.var(axis=1, ddof=1)
    return float(paired.mean() / (single[first] + single[second]).mean())


def markdown(data: dict[str, Any]) -> str:
    it = data["about"]
    lines = [
        "# Methods at their own best step size, on three tasks",
        "",
        f"{it['date']}, commit {it['commit']}, `{it['command']}`.",
        "",
        table.machine(it),
        "",
        f"{BUDGET['stages.rl.steps']} batches of {BUDGET['stages.rl.rows']} answers after the same warm-up, "
        f"{len(SEEDS)} seeds, 400 held-out problems. Step size: the best of {', '.join(f'{f:.2g}' for f in FACTORS)} "
        f"times {RATE:g} by the mean of {len(TRIALS)} runs with other seeds. Differences to `grpo` without KL at its "
        "own best step size, in points, paired by seed, with 95 % intervals (Student's t); a star stands where the one "
        "at equal batches remains after Holm's correction for all methods of the table. At equal tokens: when both had "
        "sampled as many as the one that samples fewer, dropped ones counted, interpolated between evaluations; so at "
        "equal turns, which are the steps of the environment.",
        *(["", data["note"]] if data.get("note") else []),
    ]
    for task, found in data["tasks"].items():
        if not found["methods"]:
            continue
        rows = compared(found["methods"])
        lines += ["", f"## {task}", "", f"{WHAT[task][0].upper()}{WHAT[task][1:]}.", ""]
        if len(rows) > 1:
            lines += [
                f"Variance of paired differences over that of unpaired ones, mean over all pairs of methods: "
                f"{shared_variance(rows):.2f}.",
                "",
            ]
        unit = UNITS[task]
        digits = 1 if unit == "turns" else 0
        lines += [f"|method|step size|accuracy, %|at equal batches|at equal {unit}|{unit}, k|commit|"]
        lines += ["|---|---:|---:|---:|---:|---:|---|"]
        for row in sorted(rows, key=lambda r: -r["final"]["estimate"]):
            cells = [row["name"], f"{row['factor']:.2g}x", _percent(row["final"], "")]
            cells += [_percent(row["difference"]) + (" *" if row["significant"] else "")]
            cells += [
                _percent(row["at equal"]),
                f"{row['spent'] / 1e3:,.{digits}f}",
                row["commit"],
            ]
            lines.append(f"|{'|'.join(cells)}|")
        if found["failed"]:
            lines += ["", "Did not finish:", "", *(f"- {name}: {why}" for name, why in found["failed"].items())]
    return "\n".join(lines) + "\n"


def _percent(found: dict[str, float] | None, sign: str = "+") -> str:
    if not found:
        return ""
    value, low, high = (100 * found[key] for key in ("estimate", "low", "high"))
    return f"{value:{sign}.1f} ({low:{sign}.1f} to {high:{sign}.1f})"


def raced(slug: str, task: str, found: dict[str, Any], folder: Path, processes: int) -> dict[str, Any] | str:
    """Chooses a method's step size and measures it, or returns why that failed. found: the task's results so far."""
    trials = {factor: [planned(slug, task, factor, seed, folder) for seed in TRIALS] for factor in FACTORS}
    failed = finished([run for runs in trials.values() for run in runs], folder, processes)
    if slug in failed:
        return failed[slug]
    factor = best_factor(trials)
    chosen = [planned(slug, task, factor, seed, folder) for seed in SEEDS]
    failed = finished(chosen, folder, processes)
    if slug in failed:
        return failed[slug]
    yardstick = None if slug == "grpo" else found["methods"]["grpo"]["curves"]
    return record_of(factor, [curve(run.run, UNITS[task]) for run in chosen], yardstick)


def wanted(data: dict[str, Any], tasks: Sequence[str], only: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs (method, task) to measure: those of `only`, or all that have no result; GRPO first where its curves are
    not kept."""
    able, _ = contestants(only)
    slugs = [slug for slug in able if not reads_texts(slug) and slug != "grpo"]
    found = []
    for task in tasks:
        chosen = [slug for slug in slugs if only or slug in CHOSEN.get(task, slugs)]
        methods, failed = data["tasks"][task]["methods"], data["tasks"][task]["failed"]
        missing = [slug for slug in chosen if slug in only or (slug not in methods and slug not in failed)]
        first = ["grpo"] if "grpo" in only or "curves" not in methods.get("grpo", {}) else []
        found += [(slug, task) for slug in (*first, *missing)]
    return found


def stored() -> dict[str, Any]:
    """The results that are there."""
    file = RESULTS.with_suffix(".json")
    data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {"tasks": {}}
    for task in TASKS:
        data["tasks"].setdefault(task, {"methods": {}, "failed": {}})
    return data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the runs are kept")
    parser.add_argument("--only", nargs="*", default=[], metavar="METHOD")
    parser.add_argument("--tasks", nargs="*", choices=sorted(TASKS), default=sorted(TASKS))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--note", help="a sentence on the circumstances, for the page's head, in place of the present one"
    )
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    data = stored()
    data["about"] = {**table.about(ROOT, threads=1, module="tuned"), "command": "python -m benchmarks.tuned"}
    if options.note is not None:
        data["note"] = options.note
    for slug, task in wanted(data, options.tasks, options.only):
        found = data["tasks"][task]
        result = raced(slug, task, found, options.folder, options.processes)
        found["failed"].pop(slug, None)
        if isinstance(result, str):
            found["failed"][slug] = result
        else:
            found["methods"][slug] = {**result, **{key: data["about"][key] for key in ("commit", "date")}}
        data["about"]["load_after"] = os.getloadavg()
        RESULTS.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        RESULTS.with_suffix(".md").write_text(markdown(data), encoding="utf-8")
    print(markdown(data))


if __name__ == "__main__":
    main()
