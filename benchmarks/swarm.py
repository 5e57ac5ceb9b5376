"""Learners that share their answers through a folder, against the same learners alone: the recipe `sapo-swarm`.

python -m benchmarks.swarm                 3 swarms of 4 nodes, into benchmarks/results/swarm.{json,md}

The nodes of a swarm are processes that run at the same time, as many as there are, so seconds say nothing here. Alone,
each node learns from as many answers, all of them its own.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import table
from benchmarks.spec import HERE
from polopt.metrics.compare import paired_difference
from polopt.metrics.intervals import t_interval
from polopt.training.run import Run

SHARES = {"together": 0.5, "alone": 0.0}


def swarm(folder: Path, nodes: int, repeat: int, share: float) -> list[Run]:
    """The finished runs of one swarm."""
    runs = [folder / f"node-{i}" for i in range(nodes)]
    team = []
    for i, run in enumerate(runs):
        command = [sys.executable, "-m", "polopt", "train", "sapo-swarm", "--run", str(run)]
        settings = {
            "seed": repeat * nodes + i,
            "threads": 1,
            "stages.rl.method.node": f"node-{i}",
            "stages.rl.method.pool": str(folder / "pool"),
            "stages.rl.method.external": share,
            "evaluation.every": 0,
        }
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        team.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
    for process in team:
        _, trouble = process.communicate()
        if process.returncode:
            raise SystemExit(f"a node failed: {trouble[-2000:]}")
    return [Run.open(run) for run in runs]


def measured(runs: list[Run]) -> dict[str, float]:
    """Means over the nodes of a swarm."""
    after = [[e for e in run.read("evaluations") if e["when"] == "after"][-1]["pass@1"]["estimate"] for run in runs]
    steps = [[m for m in run.read("metrics") if m["stage"] == "rl"] for run in runs]
    return {
        "accuracy": mean(after),
        "sampled": mean(sum(m["sampled"] for m in own) for own in steps),
        "external": mean(mean(m.get("external", 0.0) for m in own) for own in steps),
    }


def markdown(data: dict[str, Any]) -> str:
    it, gap = data["about"], data["difference"]
    show = lambda i: f"{i['estimate'] * 100:.1f} ({i['low'] * 100:.1f} – {i['high'] * 100:.1f})"  # noqa: E731
    lines = [
        "# Learners that share their answers",
        "",
        f"{it['date']}, commit {it['commit']}, `{it['command']}`.",
        "",
        table.machine(it),
        "",
        f"The recipe `sapo-swarm`: {data['repeats']} swarms of {data['nodes']} nodes, which differ in their seeds and "
        "begin from warm-ups of their own. Accuracy on held-out tasks: mean over the nodes, with a 95 % interval over "
        "swarms (Student's t). A node of a swarm samples half of its batches' groups, at most, and reads the others.",
        "",
        "|nodes|accuracy, %|shared rows|tokens sampled a node, k|",
        "|---|---:|---:|---:|",
    ]
    for name, row in data["rows"].items():
        lines.append(f"|{name}|{show(row['accuracy'])}|{row['external']:.2f}|{row['sampled'] / 1e3:.1f}|")
    lines += ["", f"Together less alone, paired by swarm: {show(gap)} points."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    about = table.about(HERE.parent, threads=1, module="swarm")
    found: dict[str, list[dict[str, float]]] = {name: [] for name in SHARES}
    with tempfile.TemporaryDirectory(prefix="polopt-swarm-") as place:
        for repeat in range(options.repeats):
            for name, share in SHARES.items():
                folder = Path(place) / f"{name}-{repeat}"
                found[name].append(measured(swarm(folder, options.nodes, repeat, share)))
                print(f"swarm {repeat}, {name}: {found[name][-1]}", flush=True)
    accuracy = {name: [one["accuracy"] for one in rows] for name, rows in found.items()}
    rows = {
        name: {
            "accuracy": dataclasses.asdict(t_interval(accuracy[name])),
            "sampled": mean(one["sampled"] for one in found[name]),
            "external": mean(one["external"] for one in found[name]),
        }
        for name in SHARES
    }
    data = {
        "about": {**about, "load_after": os.getloadavg()},
        "nodes": options.nodes,
        "repeats": options.repeats,
        "rows": rows,
        "difference": dataclasses.asdict(paired_difference(accuracy["together"], accuracy["alone"])),
        "swarms": found,
    }
    (options.output / "swarm.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    (options.output / "swarm.md").write_text(markdown(data), encoding="utf-8")
    print(markdown(data))


if __name__ == "__main__":
    main()
