"""Runs on a Ray cluster of this machine whose workers, nodes and learner are killed at random moments, against the same
runs left in peace.

    python -m benchmarks.chaos [--seeds 2] [--every 20] [--out benchmarks/results/chaos]

One node for the learner and two with room for a worker each, all of them processes of this machine. Every 20 seconds,
from half to one and a half times that, one of three things happens: a worker's process is killed, a node is (and
another one begins), or the learner is, and `polopt train --resume` goes on. Compared are the weights, the metrics
(clock times and `cluster/` aside), the order of tasks and the held-out accuracy.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from polopt.training import recipe as recipes
from polopt.training.run import Run

NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80_000_000}
HEALTH = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 3}
CHANGES = {
    "threads": 1,
    "stages.rl.method": "grpo",
    "stages.rl.steps": 30,
    "checkpoint": 4,
    "cluster": {"workers": 2, "shares": 4, "ahead": 1},
}
OWN = ("seconds", "tokens_per_second", "cluster/")


class Chaos:
    """The accidents of a run: the next one comes when its time has."""

    def __init__(self, cluster: Any, seed: int | None, every: float) -> None:
        self.cluster, self.lots, self.every = cluster, random.Random(seed), every
        self.happened = {"worker": 0, "node": 0, "learner": 0}
        self.nodes = [cluster.add_node(**NODE) for _ in range(2)]
        self.at = float("inf") if seed is None else self._later()

    def _later(self) -> float:
        return time.monotonic() + self.lots.uniform(0.5, 1.5) * self.every

    def strike(self, learner: subprocess.Popen[bytes]) -> None:
        """Let it happen."""
        if time.monotonic() < self.at:
            return
        kind = self.lots.choice(list(self.happened))
        workers = [p for p in psutil.Process().children(recursive=True) if _is_worker(p)]
        if kind == "worker" and workers:
            self.lots.choice(workers).kill()
        elif kind == "node":
            self.cluster.remove_node(self.nodes.pop(self.lots.randrange(2)), allow_graceful=False)
            self.nodes.append(self.cluster.add_node(**NODE))
        elif kind == "learner":
            learner.kill()
        else:
            return
        self.happened[kind] += 1
        self.at = self._later()

    def end(self) -> None:
        for node in self.nodes:
            self.cluster.remove_node(node)


def _is_worker(process: psutil.Process) -> bool:
    try:
        return process.cmdline()[0].startswith("ray::RolloutWorker")
    except (psutil.Error, IndexError):
        return False


def run(cluster: Any, recipe: Path, folder: Path, chaos: Chaos) -> float:
    """Train to the end, whatever happens; seconds that it took."""
    begun, command = time.perf_counter(), [sys.executable, "-m", "polopt", "train", "--cluster", cluster.address]
    while True:
        there = (folder / "recipe.yaml").is_file()
        how = ["--resume", str(folder)] if there else [str(recipe), "--run", str(folder)]
        with (folder.parent / f"{folder.name}.log").open("ab") as log:
            learner = subprocess.Popen([*command, *how], stdout=log, stderr=log)
        while learner.poll() is None:
            chaos.strike(learner)
            time.sleep(0.1)
        if learner.returncode == 0:
            return time.perf_counter() - begun
        if learner.returncode > 0:
            sys.exit(f"the learner failed by itself: see {log.name}")


def left_by(folder: Path) -> dict[str, Any]:
    found = Run.open(folder)
    metrics = [{k: v for k, v in m.items() if not k.startswith(OWN)} for m in found.read("metrics")]
    last = folder / "checkpoints" / f"{found.checkpoint:08d}" / "state.safetensors"
    return {
        "policy": (folder / "policy" / "model.safetensors").read_bytes(),
        "state": last.read_bytes(),
        "metrics": metrics,
    }


def accuracy(folder: Path) -> float:
    return Run.open(folder).read("evaluations")[-1]["pass@1"]["estimate"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--every", type=float, default=20.0, help="seconds; a worker must have time to begin")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/chaos"))
    arguments = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # sockets have short names
    (place / "ray").mkdir()
    os.environ |= {"RAY_TMPDIR": str(place), "PYTHONPATH": os.pathsep.join(["", *filter(None, sys.path)])}
    from ray.cluster_utils import Cluster

    head = {**NODE, "num_cpus": 0, "include_dashboard": False, "_system_config": HEALTH}
    cluster, rows = Cluster(initialize_head=True, head_node_args=head), []
    try:
        for seed in range(arguments.seeds):
            recipe = place / f"{seed}.yaml"
            recipe.write_text(recipes.load("smoke", {**CHANGES, "seed": seed}).to_yaml())
            quiet, wild = place / f"quiet-{seed}", place / f"wild-{seed}"
            seconds = {}
            for folder, lots in ((quiet, None), (wild, seed)):
                chaos = Chaos(cluster, lots, arguments.every)
                seconds[folder.name] = run(cluster, recipe, folder, chaos)
                chaos.end()
            logged = Run.open(wild).read("metrics")
            row: dict[str, Any] = {
                "seed": seed,
                "steps": len(logged),
                **{f"killed {k}": n for k, n in chaos.happened.items()},
            }
            row |= {"shares played again": int(sum(m["cluster/again"] for m in logged))}
            row |= {"same bits": left_by(wild) == left_by(quiet)}
            row |= {"accuracy in peace": accuracy(quiet), "accuracy": accuracy(wild)}
            row |= {"seconds in peace": round(seconds[quiet.name], 1), "seconds": round(seconds[wild.name], 1)}
            rows.append(row)
            print(json.dumps(row), flush=True)
    finally:
        cluster.shutdown()
        shutil.rmtree(place, ignore_errors=True)
    arguments.out.with_suffix(".json").write_text(json.dumps(rows, indent=1))
    names = list(rows[0])
    table = [names, ["---"] * len(names), *[[str(row[name]) for name in names] for row in rows]]
    text = "\n".join("| " + " | ".join(line) + " |" for line in table)
    arguments.out.with_suffix(".md").write_text(
        f"# Workers, nodes and the learner killed at random moments\n\n{__doc__}\n{text}\n"
    )


if __name__ == "__main__":
    main()
