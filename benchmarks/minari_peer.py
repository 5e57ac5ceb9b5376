"""Data sets that Minari writes, read by Minari and by polopt: the same numbers.

python -m benchmarks.minari_peer --folder F     installs Minari into F/peers once, lets it write sets, and compares

Three sets, of torques, of choices, and with a dictionary of observations (SETS). Minari runs in
a process of its own, and hands over what its own interface reads of them; ours is `load_transitions`. Results are in
benchmarks/results/minari_peer.{json,md}.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import table
from benchmarks.methods import ROOT
from benchmarks.spec import HERE

RESULTS = HERE / "results" / "minari_peer"
PEERS = (
    "minari==0.5.4",
    "h5py==3.16.0",
    "portion==2.6.3",
    "sortedcontainers==2.4.0",
    "jax==0.7.1",
    "jaxlib==0.7.1",
    "ml_dtypes==0.5.3",
    "opt_einsum==3.4.0",
)
# Name of a set -> environment, numbers in an observation, shape of an action, episodes.
SETS: dict[str, tuple[str, int, tuple[int, ...], int]] = {
    "torque": ("Pendulum-v1", 3, (1,), 5),
    "choices": ("CartPole-v1", 4, (), 20),
    "goals": ("goals", 6, (2,), 5),
}
COLUMNS = ("observation", "next_observation", "action", "reward", "terminated", "truncated")


def goals() -> Any:
    """Makes an environment of which the observations are a dictionary; a goal is never met, and episodes are cut."""
    import gymnasium
    from gymnasium.spaces import Box, Dict

    two = Box(-5.0, 5.0, (2,), np.float64)

    class Goals(gymnasium.Env[Any, Any]):
        observation_space = Dict({"observation": two, "achieved_goal": two, "desired_goal": two})
        action_space = Box(-1.0, 1.0, (2,), np.float32)

        def _seen(self) -> Any:
            return {"observation": self.speed, "achieved_goal": self.place, "desired_goal": np.array([4.0, 4.0])}

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            self.place, self.speed = self.np_random.normal(size=2).clip(-1, 1), np.zeros(2)
            return self._seen(), {}

        def step(self, action: Any) -> Any:
            self.speed = 0.5 * self.speed + 0.1 * np.asarray(action, np.float64)
            self.place = (self.place + self.speed).clip(-5, 5)
            return self._seen(), -float(np.abs(self.place).sum()), False, False, {}

    return gymnasium.wrappers.TimeLimit(Goals(), 15)


def write(folder: Path) -> None:
    """Minari's side: writes every set, and what its own reader finds in it."""
    os.environ["MINARI_DATASETS_PATH"] = str(folder / "sets")
    import gymnasium
    import minari
    from minari import DataCollector

    for name, (environment, *_, episodes) in SETS.items():
        plain = goals() if environment == "goals" else gymnasium.make(environment, max_episode_steps=40)
        collector = DataCollector(plain)
        collector.action_space.seed(0)
        for episode in range(episodes):
            collector.reset(seed=episode)
            over = False
            while not over:
                _, _, terminated, truncated, _ = collector.step(collector.action_space.sample())
                over = bool(terminated or truncated)
        collector.create_dataset(f"polopt/{name}-v0")
        columns: dict[str, list[Any]] = {column: [] for column in COLUMNS}
        for found in minari.load_dataset(f"polopt/{name}-v0").iterate_episodes():
            seen: Any = found.observations
            if isinstance(seen, dict):
                seen = np.concatenate([seen[key] for key in ("observation", "achieved_goal", "desired_goal")], 1)
            columns["observation"].append(seen[:-1])
            columns["next_observation"].append(seen[1:])
            for column in ("action", "reward"):
                columns[column].append(getattr(found, f"{column}s"))
            columns["terminated"].append(found.terminations)
            columns["truncated"].append(found.truncations)
        np.savez(folder / f"{name}.npz", **{column: np.concatenate(parts) for column, parts in columns.items()})


def compared(folder: Path) -> list[dict[str, Any]]:
    """Our side: reads every set by folder and by name, and counts the numbers that differ from Minari's."""
    os.environ["MINARI_DATASETS_PATH"] = str(folder / "sets")
    from polopt.training.control.logged import load_transitions

    rows = []
    for name, (environment, observations, action, episodes) in SETS.items():
        with np.load(folder / f"{name}.npz") as file:
            theirs = {column: file[column] for column in COLUMNS}
        paths = (folder / "sets" / "polopt" / f"{name}-v0", f"minari:polopt/{name}-v0")
        ours = [load_transitions(path, "transitions", observations=observations, action=action) for path in paths]
        differ = 0
        for found in ours:
            for column, values in theirs.items():
                own = found[column].numpy()
                # Ours are float32, as environments' are here; Minari's are of the environment's type.
                differ += int((own != values.astype(own.dtype).reshape(own.shape)).sum())
        count, cut = len(theirs["reward"]), int(theirs["truncated"].sum())
        rows.append({"set": name, "environment": environment, "episodes": episodes, "transitions": count})
        rows[-1] |= {"terminated": int(theirs["terminated"].sum()), "truncated": cut, "differ": differ}
    return rows


def markdown(data: dict[str, Any]) -> str:
    it = data["about"]
    lines = ["# Data sets that Minari writes", "", f"{it['date']}, commit {it['commit']}, `{it['command']}`.", ""]
    lines += [f"{', '.join(PEERS)}. Read by Minari's own interface, and by folder and by name here.", ""]
    lines += ["|set|environment|episodes|transitions|terminated|truncated|numbers that differ|"]
    lines += ["|---|---|---:|---:|---:|---:|---:|"]
    lines += [f"|{'|'.join(str(cell) for cell in row.values())}|" for row in data["rows"]]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where Minari and the sets are kept")
    parser.add_argument("--side", choices=["write", "read"], help="one side alone, in this process")
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if options.side == "write":
        return write(folder)
    if options.side == "read":
        return print(json.dumps(compared(folder)))
    peers = folder / "peers"
    if not (peers / "minari").is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--target", str(peers), *PEERS], check=True)
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{peers}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.minari_peer", "--folder", str(folder), "--side"]
    if not (folder / "sets").is_dir():
        subprocess.run([*command, "write"], env=env, check=True, cwd=ROOT)
    done = subprocess.run([*command, "read"], env=env, capture_output=True, text=True, check=True, cwd=ROOT)
    about = table.about(ROOT, threads=1, module="minari_peer") | {"command": "python -m benchmarks.minari_peer"}
    data = {"about": about, "peers": PEERS, "rows": json.loads(done.stdout.splitlines()[-1])}
    RESULTS.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    RESULTS.with_suffix(".md").write_text(markdown(data), encoding="utf-8")
    print(markdown(data))
    return None


if __name__ == "__main__":
    main()
