"""How much faster two processes are than one: seconds of a step of the main job, `torchrun` with one thread each.

python -m benchmarks.parallel           some minutes, into benchmarks/results/parallel.{json,md}; --sizes 1M for fewer
python -m benchmarks.parallel --quick   does it run? measures nothing of use

The ways are measured in turn, several times, so that whatever else the machine does meets all of them. The floor of two
processes is half of one's time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks import table
from benchmarks.spec import HERE
from polopt.training.estimate import AlternatingOutcome
from polopt.training.language import LanguageDomain
from polopt.training.process_group import assemble
from polopt.training.recipe import load
from polopt.training.stage_learning import StageLearning

RESULTS = HERE / "results"
STAGE = "rl"
WAYS = {"1 process": (1, "ddp"), "2 processes, ddp": (2, "ddp"), "2 processes, fsdp": (2, "fsdp")}
SIZES: dict[str, dict[str, Any]] = {"1M": {}, "4M": {"policy.config.n_layer": 4, "policy.config.n_embd": 288}}


def step_seconds(size: str, parallel: str, steps: int) -> dict[str, float]:
    """Medians over steps after the first, in this process of a team."""
    torch.set_num_threads(1)
    recipe = load("laptop", {**SIZES[size], "threads": 1, "parallel": parallel})
    team = assemble("cpu")
    domain, stage, algorithm = LanguageDomain(recipe, team), recipe.stages[STAGE], recipe.algorithms[STAGE]
    settings = {"engine": domain.engine, "grounds": domain.executor}
    player = AlternatingOutcome(domain.policy, domain.splits[STAGE].train, recipe.limit_of(STAGE), **settings)
    source = domain.source(STAGE, stage.rows, player)
    learning = StageLearning(domain, algorithm, stage, source, torch.Generator(), team)
    whole, learn = [], []
    for step in range(steps + 1):
        begun = time.perf_counter()
        record = learning.step(step)
        domain.sync_weights(step + 1)
        whole.append(time.perf_counter() - begun)
        learn.append(record["seconds/learn"])
    team.barrier()
    return {"step": median(whole[1:]), "learn": median(learn[1:]), "tokens": record["tokens"]}


def measure(size: str, way: str, steps: int) -> dict[str, float]:
    processes, parallel = WAYS[way]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        order = ["-m", "--", "benchmarks.parallel", "--work", size, parallel, str(steps), str(out)]
        subprocess.run([*launch, *order], check=True, capture_output=True)
        return json.loads(out.read_text())


def page(record: dict[str, Any]) -> str:
    lines = [
        "| policy | way | step | times one process | learning | times one process |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for row in record["rows"]:
        lines.append(
            f"| {row['size']} | {row['way']} | {row['step']:.2f} s | {row['step_ratio']:.2f} | {row['learn']:.2f} s | "
            f"{row['learn_ratio']:.2f} |"
        )
    machine = record["about"]["machine"]
    return (
        "# Two processes against one\n\n"
        f"Steps of the main job's reinforcement learning, untrained policies, one thread a process; medians over "
        f"{record['steps']} steps and {record['repeats']} rounds, ratios within a round; at best 0.5. "
        f"{machine['cpu']}, {machine['usable']} cores, PyTorch {record['about']['versions']['torch']}.\n\n"
        + "\n".join(lines)
        + "\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--work", nargs=4, metavar=("SIZE", "PARALLEL", "STEPS", "FILE"))
    options = parser.parse_args()
    if options.work:
        size, parallel, steps, file = options.work
        found = step_seconds(size, parallel, int(steps))
        if os.environ["RANK"] == "0":
            Path(file).write_text(json.dumps(found))
        return
    steps, repeats, sizes = (1, 1, ["1M"]) if options.quick else (4, 3, options.sizes)
    about, rows = table.about(HERE.parent, 1, "parallel"), []
    for size in sizes:
        rounds = [{way: measure(size, way, steps) for way in WAYS} for _ in range(repeats)]
        for way in WAYS:
            row: dict[str, Any] = {"size": size, "way": way}
            for name in ("step", "learn"):
                row[name] = median(found[way][name] for found in rounds)
                row[f"{name}_ratio"] = median(found[way][name] / found["1 process"][name] for found in rounds)
            rows.append({**row, "rounds": [found[way] for found in rounds]})
            print(json.dumps({k: v for k, v in row.items() if k != "rounds"}))
    record = {"about": about, "steps": steps, "repeats": repeats, "rows": rows}
    if not options.quick:
        (RESULTS / "parallel.json").write_text(json.dumps(record, indent=1) + "\n")
        (RESULTS / "parallel.md").write_text(page(record))


if __name__ == "__main__":
    main()
