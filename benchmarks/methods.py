"""Every method with one small budget and several seeds, against GRPO or another plain method.

python -m benchmarks.methods              all methods on the main job, into benchmarks/results/methods.{json,md}
python -m benchmarks.methods --suite mix  methods on tasks where their idea matters (benchmarks/suites.py), into
                                          benchmarks/results/methods-mix.{json,md}; also at equal tokens and seconds
python -m benchmarks.methods --only bnpo dapo --seeds 5
python -m benchmarks.methods --folder F   keeps the runs in F; called again it goes on from there

All methods get the same batches of rows, the same optimiser and the same number of batches. The recipe was tuned for
GRPO and nobody's learning rate was tuned here: the table says what a method does when it is dropped in by name.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import table
from benchmarks.curves import equal_budgets, main_stage
from benchmarks.spec import HERE
from benchmarks.suites import SUITES
from polopt import catalogue, index
from polopt.algorithm import Algorithm
from polopt.metrics import Comparison, t_interval
from polopt.training import recipe as recipes
from polopt.training.compare import Method, compare, file_name
from polopt.training.compare import label as label_of
from polopt.training.provided import LANGUAGE
from polopt.training.run import Run
from polopt.training.run_executor import ComparedRun, TrialError
from polopt.worlds import build_tasks

ROOT = HERE.parent
YARDSTICK = {"name": "grpo", "kl": 0.0}
PARTS = ("rollout", "reward", "learn")
BUDGET: dict[str, Any] = {
    "stages.rl.steps": 40,
    "stages.rl.rows": 192,
    "evaluation.every": 0,
    "checkpoint": 1000,
}


def trainable(algorithm: Algorithm) -> bool:
    """Whether the language loop can provide all that the algorithm reads."""
    return not LANGUAGE.lacking(algorithm)


def label(slug: str) -> str:
    return "grpo(kl=0.0)" if slug == "grpo" else slug


def contestants(only: Sequence[str]) -> tuple[list[str], list[str]]:
    """Methods that can be trained here, and those that cannot."""
    slugs = list(only) or index.slugs("algorithm")
    trained = [slug for slug in slugs if trainable(catalogue.method(slug))]
    return trained, [slug for slug in slugs if slug not in trained]


def reads_texts(slug: str) -> bool:
    """Whether the method's batches hold raw texts."""
    return any("texts" in getattr(part, "source_capabilities", ()) for part in catalogue.method(slug).parts())


def texts(file: Path) -> str:
    """Write what there is to read about the tasks, 2,000 questions with their answers; the file's path."""
    recipe = recipes.load()
    tasks = build_tasks(recipe.tasks, seed=recipe.seed).train
    shown = [f"{tasks[i].prompt}\n{tasks[i].solution}" for i in range(min(2000, len(tasks)))]
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in shown), encoding="utf-8")
    return str(file.resolve())


def contest(
    methods: Sequence[Method],
    seeds: int,
    folder: Path,
    changes: Mapping[str, Any],
    source: str | None = None,
) -> tuple[Comparison, dict[str, str]]:
    """The comparison of those that finished with the first of them, and why the others did not."""
    remaining, failed = {label_of(method): method for method in methods}, dict[str, str]()
    yardstick = next(iter(remaining))
    while True:
        try:
            found = compare(
                list(remaining.values()), seeds=seeds, folder=folder, recipe=source, changes=changes, watch=_report
            )
            return found, failed
        except TrialError as error:
            name = error.trial.name
            if name == yardstick:
                raise
            failed[name] = str(error).partition(" (all of it")[0]
            del remaining[name]


_reported: set[str] = set()


def _report(trials: Sequence[ComparedRun]) -> None:
    for trial in trials:
        key = f"{trial.name} {trial.seed} {trial.state}"
        if trial.state == "finished" and key not in _reported:
            _reported.add(key)
            print(f"{len(_reported)} of {len(trials)}: {trial.name}, seed {trial.seed}", flush=True)


def costs(name: str, seeds: int, folder: Path) -> dict[str, float]:
    """What the runs of a method used and kept, means over seeds."""
    found: list[dict[str, float]] = []
    for seed in range(seeds):
        run = Run.open(folder / f"{file_name(name)}-seed-{seed}")
        stage = main_stage(run)
        steps = [record for record in run.read("metrics") if record["stage"] == stage]
        entropy = [record["entropy"] for record in steps if "entropy" in record]
        found.append(
            {
                "tokens": sum(record.get("sampled", 0) for record in steps),
                "seconds": sum(record.get(f"seconds/{part}", 0.0) for record in steps for part in PARTS),
                "entropy_before": entropy[0] if entropy else float("nan"),
                "entropy_after": mean(entropy[-3:]) if entropy else float("nan"),
            }
        )
    return {key: mean(f[key] for f in found) for key in found[0]}


def before(seeds: int, folder: Path) -> list[float]:
    """Held-out accuracy after the warm-up, which all methods of a seed share."""
    runs = [Run.open(folder / f"{file_name(label('grpo'))}-seed-{seed}") for seed in range(seeds)]
    return [next(e for e in run.read("evaluations") if e["when"] == "before")["pass@1"]["estimate"] for run in runs]


def results(comparison: Comparison, seeds: int, folder: Path) -> list[dict[str, Any]]:
    rows = [dataclasses.asdict(row) for row in comparison.table()]
    return [{**row, **costs(row["name"], seeds, folder)} for row in rows]


def markdown(data: dict[str, Any]) -> str:
    """The table for people."""
    it, seeds, budget = data["about"], data["seeds"], data["budget"]
    start = t_interval(data["before"])
    lines = [
        "# Every method, one small budget",
        "",
        f"{it['date']}, commit {it['commit']}, `{it['command']}`.",
        "",
        table.machine(it),
        "",
        f"The `laptop` recipe: {budget['stages.rl.steps']} batches of {budget['stages.rl.rows']} answers after"
        f" the same warm-up ({start.estimate:.1%} held-out accuracy, {_ends(start.low, start.high)}); {seeds} "
        "seeds, 400 held-out problems each. All methods share the optimiser's settings, which were tuned for GRPO: "
        "the table says what a method does when it is dropped in by its name, not what it can do. Accuracy: mean and "
        "95 % interval over seeds (Student's t). Difference: to `grpo` without KL, paired by seed; an interval that "
        "holds 0 shows no difference, and with so many rows about one in twenty misses the truth. Entropy: of the "
        "sampler at its decisions in the last three batches over that in the first. Tokens: every one that was "
        "sampled while learning, dropped ones too. Seconds of the "
        "reinforcement learning stage on one thread, two runs at a time. sft, otr, chord and unified-hpt see "
        "demonstrations, and typhoon-s-ink-grpo reads 2,000 questions with their answers, which the others do not.",
        *(["", data["note"]] if data.get("note") else []),
        "",
        "|method|accuracy, %|difference to grpo, points|entropy kept|tokens, k|seconds|",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in sorted(data["rows"], key=lambda r: -r["final"]["estimate"]):
        final, gap = row["final"], row.get("difference")
        kept = row["entropy_after"] / row["entropy_before"]
        cells = (
            row["name"],
            f"{final['estimate'] * 100:.1f} ({_ends(final['low'], final['high'])})",
            f"{gap['estimate'] * 100:+.1f} ({_ends(gap['low'], gap['high'], '+.1f', cut=False)})" if gap else "",
            "" if math.isnan(kept) else f"{kept:.2f}",
            f"{row['tokens'] / 1e3:,.0f}",
            f"{row['seconds']:.1f}",
        )
        lines.append(f"|{'|'.join(cells)}|")
    if data["failed"]:
        lines += ["", "Did not finish:", "", *(f"- {name}: {why}" for name, why in data["failed"].items())]
    if data["unable"]:
        lines += ["", f"Not for language policies: {', '.join(data['unable'])}."]
    return "\n".join(lines) + "\n"


def _ends(low: float, high: float, form: str = ".1f", cut: bool = True) -> str:
    """An interval's ends in percent; of a share they are cut to what a share can be."""
    ends = (max(0.0, low), min(1.0, high)) if cut else (low, high)
    return " – ".join(format(end * 100, form) for end in ends)


def race(name: str, options: argparse.Namespace) -> None:
    """The methods of one suite, with what they reach at equal tokens and at equal seconds."""
    suite = SUITES[name]
    requested = [dict(m) for m in suite.methods if not options.only or m["name"] in options.only]
    about = {**table.about(ROOT, threads=1), "command": f"python -m benchmarks.methods --suite {name}"}
    with tempfile.TemporaryDirectory(prefix="polopt-suite-") as temporary:
        folder = Path(temporary) if options.folder is None else options.folder
        methods = [dict(suite.yardstick), *requested]
        comparison, failed = contest(methods, options.seeds, folder, suite.changes, suite.recipe)
        plain = label_of(dict(suite.yardstick))
        rows = results(comparison, options.seeds, folder)
        for row in rows:
            if row["name"] != plain:
                runs = [
                    (_run_of(folder, plain, seed), _run_of(folder, row["name"], seed)) for seed in range(options.seeds)
                ]
                row["equal"] = equal_budgets(runs)
        data = {
            "about": {**about, "load_after": os.getloadavg()},
            "note": options.note,
            "suite": name,
            "what": suite.about,
            "changes": dict(suite.changes),
            "yardstick": plain,
            "seeds": options.seeds,
            "rows": rows,
            "failed": failed,
        }
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / f"methods-{name}.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    (options.output / f"methods-{name}.md").write_text(suite_markdown(data), encoding="utf-8")
    print(suite_markdown(data))


def _run_of(folder: Path, name: str, seed: int) -> Run:
    return Run.open(folder / f"{file_name(name)}-seed-{seed}")


def suite_markdown(data: dict[str, Any]) -> str:
    """A suite's table for people."""
    it = data["about"]
    lines = [
        f"# Methods on tasks where their idea matters: {data['suite']}",
        "",
        f"{it['date']}, commit {it['commit']}, `{it['command']}`.",
        "",
        table.machine(it),
        "",
        data["what"],
        "",
        f"{data['seeds']} seeds. Accuracy on held-out tasks after the last batch: mean and 95 % interval over seeds "
        f"(Student's t). Differences to `{data['yardstick']}` in points, paired by seed: after as many batches; after "
        "as many sampled tokens, every one counted that was drawn while learning, dropped ones too; after as many "
        "seconds of sampling, rewarding and learning on one thread, two runs at a time. Between evaluations accuracy "
        "is interpolated. An interval that holds 0 shows no difference; with so many rows about one in twenty misses "
        "the truth. Nobody's settings were tuned on these tasks.",
        *(["", data["note"]] if data.get("note") else []),
        "",
        "|method|accuracy, %|at equal batches|at equal tokens|at equal seconds|tokens, k|seconds|",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in sorted(data["rows"], key=lambda r: -r["final"]["estimate"]):
        final, gap, equal = row["final"], row.get("difference"), row.get("equal", {})
        cells = [table.brief(row["name"]), f"{final['estimate'] * 100:.1f} ({_ends(final['low'], final['high'])})"]
        cells += [_gap(found) for found in (gap, equal.get("tokens"), equal.get("seconds"))]
        cells += [f"{row['tokens'] / 1e3:,.0f}", f"{row['seconds']:.1f}"]
        lines.append(f"|{'|'.join(cells)}|")
    if data["failed"]:
        lines += ["", "Did not finish:", "", *(f"- {name}: {why}" for name, why in data["failed"].items())]
    return "\n".join(lines) + "\n"


def _gap(found: Mapping[str, float] | None) -> str:
    return f"{found['estimate'] * 100:+.1f} ({_ends(found['low'], found['high'], '+.1f', cut=False)})" if found else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--suite", choices=sorted(SUITES), help="tasks where an idea matters; else the main job")
    parser.add_argument("--only", nargs="*", default=[], metavar="METHOD")
    parser.add_argument("--folder", type=Path, help="where the runs are kept; a temporary folder if not given")
    parser.add_argument("--note", default="", help="a sentence on the circumstances, for the table's head")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    if options.suite:
        race(options.suite, options)
        return
    recipes.load(changes=BUDGET)
    able, unable = contestants(options.only)
    # Where and how is noted, not where the runs lie.
    about = {**table.about(ROOT, threads=1), "command": "python -m benchmarks.methods"}
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        readers = [slug for slug in able if reads_texts(slug)]
        others = [slug for slug in able if slug not in readers]
        comparison, failed = contest([YARDSTICK, *(s for s in others if s != "grpo")], options.seeds, folder, BUDGET)
        rows = results(comparison, options.seeds, folder)
        if readers:
            # Texts are part of the tasks, so these runs are a comparison of their own, with its own yardstick.
            place = folder / "with-texts"
            place.mkdir(exist_ok=True)
            also, fallen = contest(
                [YARDSTICK, *readers],
                options.seeds,
                place,
                {**BUDGET, "tasks.texts": texts(folder / "texts.jsonl")},
            )
            rows += [row for row in results(also, options.seeds, place) if row["name"] in readers]
            failed |= fallen
        data = {
            "about": {**about, "load_after": os.getloadavg()},
            "note": options.note,
            "budget": BUDGET,
            "seeds": options.seeds,
            "before": before(options.seeds, folder),
            "rows": rows,
            "failed": failed,
            "unable": unable,
        }
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "methods.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    (options.output / "methods.md").write_text(markdown(data), encoding="utf-8")
    print(markdown(data))


if __name__ == "__main__":
    main()
