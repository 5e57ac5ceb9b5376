"""The recipe `smollm`, seed after seed, with whole weights and with LoRA: what it reaches, in what time, and what it
keeps.

python -m benchmarks.smollm --runs F      three seeds of each, into benchmarks/results/smollm.{json,md}; the runs are
                                          kept in F, and those that are finished there are not run again
python -m benchmarks.smollm --runs F --only "rollouts in bfloat16" --output benchmarks/results/smollm-rollouts
                                          the same with float32 weights whose answers are drawn in bfloat16
python -m benchmarks.smollm --runs F --only "bfloat16" --output benchmarks/results/smollm-bfloat16
                                          and with all arithmetic in bfloat16 on float32 weights

Written down before the runs: every run ends at least 25 points above where reinforcement learning begins, 95 %
intervals apart, within 20 minutes of the clock, loading and all evaluations included; and the interval of the change on
questions of general knowledge, which nothing trains, reaches 0.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import table
from benchmarks.spec import HERE
from polopt.metrics.intervals import t_interval
from polopt.training.evaluate import change
from polopt.training.run import Run

ROOT = HERE.parent
POINTS, MINUTES = 0.25, 20.0
# A LoRA adapter learns with a rate some ten times that of whole weights.
WAYS: dict[str, dict[str, str]] = {
    "whole weights": {},
    "LoRA": {
        "policy.adapter": "{rank: 16, alpha: 32}",
        "stages.warmup.optimiser.lr": "4.0e-4",
        "stages.rl.optimiser.lr": "3.0e-4",
    },
    "rollouts in bfloat16": {"rollout.dtype": "bfloat16"},
    "bfloat16": {"policy.compute": "bfloat16"},
}


def trained(folder: Path, seed: int, changes: dict[str, str]) -> dict[str, float]:
    """Train as a user does, in a process of its own: seconds of the clock, and the most bytes that it held.

    Raises:
        SystemExit: it failed.
    """
    command = [sys.executable, "-m", "polopt", "train", "smollm", "--seed", str(seed), "--run", str(folder)]
    for key, value in changes.items():
        command += ["--set", f"{key}={value}"]
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return {"seconds": time.perf_counter() - start, "memory": usage.ru_maxrss * 1024}


def outcome(folder: Path) -> dict[str, Any]:
    """Accuracy of a finished run before and after reinforcement learning, of what it learns and of the rest."""
    run = Run.open(folder)
    found: dict[str, Any] = {}
    for log, name in (("evaluations", "questions"), ("others", "knowledge")):
        by_time = {e["when"]: e for e in run.read(log)}
        first, last = by_time["before"], by_time["after"]
        found[name] = {
            "before": first["pass@1"],
            "after": last["pass@1"],
            "change": dataclasses.asdict(change(first, last)),
            "problems": first["problems"],
        }
    return found


def holds(row: dict[str, Any]) -> bool:
    """Whether a run is what was written down before."""
    questions, knowledge = row["questions"], row["knowledge"]
    higher = questions["after"]["estimate"] >= questions["before"]["estimate"] + POINTS
    separate = questions["after"]["low"] > questions["before"]["high"]
    return higher and separate and row["seconds"] <= 60 * MINUTES and knowledge["change"]["high"] >= 0


def markdown(data: dict[str, Any]) -> str:
    """The table for people."""
    it = data["about"]
    lines = [
        "# Teaching SmolLM2-135M-Instruct on a laptop's processor",
        "",
        f"{it['date']}, commit {it['commit']}, `{it['command']}`.",
        "",
        table.machine(it),
        "",
        "The recipe `smollm`: 64 demonstrations of the format, then Dr. GRPO on small questions of everyday life. "
        f"Accuracy on {data['rows'][0]['questions']['problems']} held-out questions, sampled at temperature 1, before "
        "and after reinforcement learning, with 95 % intervals (Wilson's); the change with Newcombe's, paired. "
        f"Knowledge: {data['rows'][0]['knowledge']['problems']} questions of general knowledge, which nothing trains. "
        "Minutes of the clock from the command to its end: loading, the warm-up, both evaluations and the report. "
        f"Asked of each run beforehand: {POINTS * 100:.0f} points more, intervals apart, {MINUTES:.0f} minutes, and no "
        "change of knowledge whose interval lies below 0.",
        "",
        "|weights|seed|before, %|after, %|change, points"
        "|knowledge before, %|after, %|change, points|minutes|memory, GB|as asked|",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for row in data["rows"]:
        questions, knowledge = row["questions"], row["knowledge"]
        cells = [row["way"], str(row["seed"])]
        cells += [_share(questions["before"]), _share(questions["after"]), _points(questions["change"])]
        cells += [_share(knowledge["before"]), _share(knowledge["after"]), _points(knowledge["change"])]
        cells += [f"{row['seconds'] / 60:.1f}", _gigabytes(row["memory"]), "yes" if holds(row) else "no"]
        lines.append(f"|{'|'.join(cells)}|")
    for way in WAYS:
        changes = [r["questions"]["change"]["estimate"] for r in data["rows"] if r["way"] == way]
        if len(changes) > 1:
            mean = t_interval(changes)
            ends = f"{100 * mean.low:+.1f} – {100 * mean.high:+.1f}"
            lines += ["", f"{way}, mean over {len(changes)} seeds: {100 * mean.estimate:+.1f} points ({ends})."]
    return "\n".join(lines) + "\n"


def _gigabytes(memory: float | None) -> str:
    return "–" if memory is None else f"{memory / 1e9:.1f}"


def _share(found: dict[str, float]) -> str:
    return f"{100 * found['estimate']:.1f} ({100 * found['low']:.1f} – {100 * found['high']:.1f})"


def _points(found: dict[str, float]) -> str:
    return f"{100 * found['estimate']:+.1f} ({100 * found['low']:+.1f} – {100 * found['high']:+.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True, help="where the runs are kept")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", choices=list(WAYS), nargs="*", default=["whole weights", "LoRA"])
    parser.add_argument("--output", type=Path, default=HERE / "results" / "smollm", help="path without ending")
    options = parser.parse_args()
    options.runs.mkdir(parents=True, exist_ok=True)
    about = table.about(ROOT, threads=2, module="smollm") | {"command": "python -m benchmarks.smollm"}
    rows = []
    for way in WAYS:
        for seed in range(options.seeds):
            folder = options.runs / f"{way.replace(' ', '-')}-{seed}"
            note = folder.with_suffix(".json")
            if not note.exists():
                if way not in options.only:
                    continue
                note.write_text(json.dumps(trained(folder, seed, WAYS[way])))
            rows.append({"way": way, "seed": seed, **json.loads(note.read_text()), **outcome(folder)})
    data = {"about": about | {"load_after": os.getloadavg()}, "ways": WAYS, "rows": rows}
    options.output.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    options.output.with_suffix(".md").write_text(markdown(data), encoding="utf-8")
    print(markdown(data))


if __name__ == "__main__":
    main()
