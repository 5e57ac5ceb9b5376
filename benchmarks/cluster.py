"""How much more is played by more workers: episodes per second of an environment that waits, as tools and judges do.

python -m benchmarks.cluster           some minutes, into benchmarks/results/cluster.{json,md}
python -m benchmarks.cluster --quick   does it run? measures nothing of use

Waiting takes no processor, so a machine of two cores shows what it is about: whether waits overlap. The floor of a
measurement is the time that its episodes wait, shared out among those who wait at the same time.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import table
from benchmarks.spec import HERE
from polopt.training.cluster_grounds import ClusterGrounds
from polopt.training.connect import connected
from polopt.worlds import Step, Task, TaskSplit
from polopt.worlds.grounds import Grounds, Here, Threads

RESULTS = HERE / "results"
WORKERS = (1, 2, 4)
TURNS = 3


class Waiting:
    """Episodes of `TURNS` turns, each of which takes `wait` seconds, whatever is said."""

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


def play(grounds: Grounds, world: Waiting, episodes: int) -> float:
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
        places: list[tuple[str, int, Any]] = [("here", 1, Here)]
        places += [("threads", n, lambda n=n: Threads(n)) for n in WORKERS]
        places += [("actors", n, lambda n=n: ClusterGrounds(workers=n)) for n in WORKERS]
        places += [("actors of 4 threads", n, lambda n=n: ClusterGrounds(workers=n, threads=4)) for n in WORKERS]
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


def _rollouts(rows: list[dict[str, Any]]) -> list[str]:
    return []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    waits, episodes, repeats = ((0.02,), 8, 2) if given.quick else ((0.05, 0.2), 16, 3)
    about = table.about(HERE.parent, threads=1, module="cluster")
    with connected("local") as ray:
        data = {
            "about": {**about, "ray": ray.__version__},
            "environments": environments(waits, episodes, repeats),
            "rollouts": [],
        }
    data["about"]["load_after"] = os.getloadavg()
    folder = Path(tempfile.mkdtemp()) if given.quick else RESULTS
    (folder / "cluster.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    (folder / "cluster.md").write_text(markdown(data), encoding="utf-8")
    print(f"written to {folder / 'cluster.md'}")


if __name__ == "__main__":
    main()
