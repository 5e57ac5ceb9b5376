"""How much more is played by more workers: episodes per second of an environment that waits, as tools and judges do.

python -m benchmarks.cluster           some minutes, into benchmarks/results/cluster.{json,md}
python -m benchmarks.cluster --quick   does it run? measures nothing of use

Waiting takes no processor, so a machine of two cores shows what it is about: whether waits overlap. The floor of a
measurement is the time that its episodes wait, shared out among those who wait at the same time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import tempfile
import time
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks import table
from benchmarks.spec import HERE
from polopt.config import parse
from polopt.training.cluster.address import connected
from polopt.training.cluster.episodes import ClusterExecutor
from polopt.training.language_recipe import LanguageRecipe
from polopt.training.launch import train
from polopt.worlds import Step, Task, TaskSplit
from polopt.worlds.executors import EpisodeExecutor, InlineExecutor, ThreadExecutor

RESULTS = HERE / "results"
WORKERS = (1, 2, 4)
TURNS = 3


class Waiting:
    """Episodes of `TURNS` turns, each of which takes `wait` seconds, whatever the answer."""

    kinds, turns = ("waiting",), TURNS

    def __init__(self, wait: float, size: int = 1000) -> None:
        self.wait, self.size = wait, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Task:
        return Task(f"waiting/{index}", "waiting", f"go {index % 10}", "1", {})

    def episode(self, task: Task) -> Pause:
        return Pause(self, task)


class Pause:
    def __init__(self, world: Waiting, task: Task) -> None:
        self.world, self.task = world, task

    def reset(self) -> str:
        self.left = TURNS
        return self.task.prompt

    def step(self, action: str) -> Step:
        time.sleep(self.world.wait)
        self.left -= 1
        return Step("on" if self.left else "", float(len(action) % 2), not self.left, False, {})

    def demonstrate(self) -> str | None:
        return self.task.solution


def waiting(seed: int, wait: float) -> TaskSplit:
    return TaskSplit(Waiting(wait), Waiting(wait, 20))


def play(grounds: EpisodeExecutor, world: Waiting, episodes: int) -> float:
    """Seconds of so many episodes."""
    plays = grounds.open(world, [world[i] for i in range(episodes)])
    grounds.reset(plays)
    start = time.perf_counter()
    for _ in range(TURNS):
        steps = grounds.step(plays, ["1"] * episodes)
    assert all(step.terminated for step in steps)
    return time.perf_counter() - start


def environments(waits: tuple[float, ...], episodes: int, repeats: int) -> list[dict[str, Any]]:
    """Rows of the first table."""
    rows = []
    for wait in waits:
        world = Waiting(wait)
        places: list[tuple[str, int, Any]] = [("here", 1, InlineExecutor)]
        places += [("threads", n, lambda n=n: ThreadExecutor(n)) for n in WORKERS]
        places += [("actors", n, lambda n=n: ClusterExecutor(workers=n)) for n in WORKERS]
        places += [("actors of 4 threads", n, lambda n=n: ClusterExecutor(workers=n, threads=4)) for n in WORKERS]
        for name, workers, make in places:
            grounds = make()
            overlap = workers * (4 if "of 4" in name else 1)
            play(grounds, world, overlap)  # who begins late does not count
            seconds = [play(grounds, world, episodes) for _ in range(repeats)]
            floor = -(-episodes // overlap) * TURNS * wait
            rows.append({"where": name, "workers": workers, "wait": wait, "seconds": seconds, "floor": floor})
            print(f"{name} x {workers}, {wait * 1e3:.0f} ms: {episodes / median(seconds):.1f} episodes/s", flush=True)
            del grounds
    return [{**row, "episodes": episodes} for row in rows]


def markdown(data: dict[str, Any]) -> str:
    it = data["about"]
    lines = [
        "# Workers, where environments wait",
        "",
        f"{it['date']}, commit {it['commit']}, `{it['command']}`, ray {it['ray']}.",
        "",
        table.machine(it),
        "",
        f"## Environments: {TURNS} turns an episode, each of which waits",
        "",
        "No policy: the actions are there. Workers on one machine. Floor: the waits alone, shared out among those who "
        "wait at the same time; how many times the floor was needed, median (least – greatest).",
        "",
        "|where|workers|wait, ms|episodes/s|times the first row|times the floor|",
        "|---|---:|---:|---:|---:|---:|",
    ]
    first: dict[float, float] = {}
    for row in data["environments"]:
        rate = row["episodes"] / median(row["seconds"])
        times = sorted(seconds / row["floor"] for seconds in row["seconds"])
        gain = rate / first.setdefault(row["wait"], rate)
        lines.append(
            f"|{row['where']}|{row['workers']}|{row['wait'] * 1e3:.0f}|{rate:.1f}|{gain:.2f}|"
            f"{median(times):.3f} ({times[0]:.3f} – {times[-1]:.3f})|"
        )
    if data["rollouts"]:
        lines += _rollouts(data["rollouts"])
    return "\n".join(lines) + "\n"


def rollouts(waits: tuple[float, ...], rows: int, steps: int) -> list[dict[str, Any]]:
    """Rows of the second table: a whole run, with its policy, from rollout workers that each play in turn, and from
    workers whose episodes wait in threads."""
    found = []
    for wait in waits:
        for threads in (1, 4):
            for workers in WORKERS:
                with tempfile.TemporaryDirectory() as folder:
                    run = train(_recipe(wait, workers, threads, rows, steps), Path(folder) / "run", address="auto")
                    logged = [m for m in run.read("metrics") if m["stage"] == "rl"]
                clock = [m["seconds"] for m in logged]
                # An answer that the token limit cuts off does not wait.
                shares = [1 - m["truncated"] for m in logged[1:]]
                seconds = [end - start for start, end in itertools.pairwise(clock)]
                floor = rows / workers / threads * TURNS * wait
                found.append({"workers": workers, "threads": threads, "wait": wait, "rows": rows, "seconds": seconds})
                found[-1] |= {"floor": floor, "whole": shares}
                print(f"{workers} rollout workers of {threads}: {rows / median(seconds):.1f} rows/s", flush=True)
    return found


def _recipe(wait: float, workers: int, threads: int, rows: int, steps: int) -> LanguageRecipe:
    """A policy that first learns to repeat the observation, where nothing waits."""
    world = {"kind": "benchmarks.cluster:waiting"}
    model = {"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 64}
    sft = {"method": "sft", "steps": 30, "rows": 16, "tasks": {**world, "wait": 0.0}, "optimiser": {"lr": 0.02}}
    rl = {"method": "grpo", "steps": steps, "rows": rows, "group": 4, "optimiser": {"lr": 1e-6}}
    return parse(
        LanguageRecipe,
        {
            "threads": 1,
            "policy": {"config": model},
            "tasks": {**world, "wait": wait},
            "limit": 2,
            "stages": {"sft": sft, "rl": rl},
            "evaluation": {"problems": 1},
            "cluster": {"workers": workers, "cpus": 0.25},
            "episodes": {"where": "threads", "workers": threads},
            "checkpoint": 1000,
        },
        "benchmark",
    )


def _rollouts(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "",
        "## Rollout workers: a whole run with a small policy",
        "",
        "`polopt train --cluster`: from the end of one step to the end of the next, sampling, learning and weights "
        "handed over included, the first step left out. Floor: the waits alone, as if every row reached the world and "
        "waited, shared out among workers and their threads.",
        "",
        "|rollout workers|threads in each|wait, ms|rows/s|times the first row|times the floor|rows not cut off|",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    first: dict[float, float] = {}
    for row in rows:
        rate, times = row["rows"] / median(row["seconds"]), sorted(s / row["floor"] for s in row["seconds"])
        lines.append(
            f"|{row['workers']}|{row['threads']}|{row['wait'] * 1e3:.0f}|{rate:.1f}|"
            f"{rate / first.setdefault(row['wait'], rate):.2f}|{median(times):.2f} ({times[0]:.2f} – {times[-1]:.2f})|"
            f"{100 * mean(row['whole']):.0f} %|"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    wait, episodes, repeats, steps = (0.02, 8, 2, 3) if options.quick else (0.1, 16, 3, 6)
    data: dict[str, Any] = {"about": table.about(HERE.parent, threads=1, module="cluster"), "rollouts": []}
    folder = Path(tempfile.mkdtemp()) if options.quick else RESULTS

    def write() -> None:
        data["about"]["load_after"] = os.getloadavg()
        (folder / "cluster.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        (folder / "cluster.md").write_text(markdown(data), encoding="utf-8")

    with connected("local") as ray:
        data["about"]["ray"] = ray.__version__
        data["environments"] = environments((wait,), episodes, repeats)
        write()
        data["rollouts"] = rollouts((2 * wait,), 2 * episodes, steps)
        write()
    print(f"written to {folder / 'cluster.md'}")


if __name__ == "__main__":
    main()
