"""Learning curves of PPO and SAC on gymnasium's environments beside stable-baselines3, at the same settings.

python -m benchmarks.learning_curves --folder F     installs the peer and the physics into F/peers once, and compares

Each side trains on each of the seeds, in a process of one thread, and is measured on episodes of its own by the most
likely actions at the same numbers of environment steps. What has finished is kept in F/curves, so that a second call
goes on from there. Results are in benchmarks/results/learning_curves.{json,md}.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import table
from benchmarks.methods import ROOT
from benchmarks.spec import HERE

RESULTS = HERE / "results" / "learning_curves"
PEER = "stable-baselines3==2.9.2"
# What the peer and the environments import and this environment may not have.
BESIDE = ("cloudpickle", "mujoco==3.3.7", "glfw", "pyopengl", "etils", "absl-py", "box2d", "pygame")
SIDES = ("polopt", "stable-baselines3")
SEEDS = (61, 62, 63, 64, 65)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of both sides on one environment, in the peer's words; `steps` and `every` are rounded down to whole
    batches of copies x length."""

    steps: int
    every: int
    episodes: int = 20
    gamma: float = 0.99
    copies: int = 1


@dataclasses.dataclass(frozen=True)
class PPO(Settings):
    """Settings of PPO."""

    length: int = 2048
    batch: int = 64
    epochs: int = 10
    lam: float = 0.95
    lr: float = 3e-4
    entropy: float = 0.0


@dataclasses.dataclass(frozen=True)
class SAC(Settings):
    """Settings of SAC, with an update of `batch` transitions after each step."""

    start: int = 100
    batch: int = 256
    lr: float = 1e-3
    length: int = 50


# rl-baselines3-zoo's settings without normalisation and with constant rates where it has some, and else the defaults of
# stable-baselines3.
SETTINGS: dict[str, PPO | SAC] = {
    "CartPole-v1": PPO(50_000, 10_000, copies=8, length=32, batch=256, epochs=20, gamma=0.98, lam=0.8, lr=1e-3),
    "Acrobot-v1": PPO(100_000, 20_000, copies=16, length=256, epochs=4, lam=0.94),
    "LunarLander-v3": PPO(300_000, 60_000, copies=16, length=1024, epochs=4, gamma=0.999, lam=0.98, entropy=0.01),
    "Pendulum-v1": SAC(8_000, 2_000),
    "HalfCheetah-v5": PPO(200_000, 40_000, episodes=10),
    "Hopper-v5": PPO(200_000, 40_000, episodes=10),
}


def counts(settings: PPO | SAC) -> tuple[int, int, int]:
    """Returns the environment steps of a batch, the batches of a run, and the batches between two evaluations."""
    rows = settings.copies * settings.length
    every = settings.every // rows
    return rows, settings.steps // rows // every * every, every


class Watch:
    """A watcher that keeps each evaluation's return, and the processor time of the batches but for the first, in which
    graphs are compiled."""

    def __init__(self, rows: int) -> None:
        self.rows, self.seconds, self.batches, self.points = rows, 0.0, 0, list[tuple[int, float]]()

    def begin(self, recipe: Any, about: Mapping[str, Any]) -> None:
        self.last = time.process_time()

    def step(self, record: Mapping[str, Any]) -> None:
        now = time.process_time()
        self.seconds, self.last = (self.seconds + now - self.last) if self.batches else 0.0, now
        self.batches += 1

    def evaluation(self, record: Mapping[str, Any]) -> None:
        self.last = time.process_time()
        if record["step"]:
            self.points.append((record["step"] * self.rows, record["return"]["estimate"]))


def ours(name: str, seed: int) -> dict[str, Any]:
    """Trains on an environment. Returns (environment steps, return) of the evaluations, and steps a second."""
    from polopt.training import recipe as recipes
    from polopt.training.launch import train

    settings = SETTINGS[name]
    rows, batches, every = counts(settings)
    changes: dict[str, Any] = {
        "seed": seed,
        "threads": 1,
        "environment": {"id": name},
        "compiled": True,
        "stages.rl.rows": settings.copies,
        "stages.rl.steps": batches,
        "stages.rl.optimiser": {"lr": settings.lr, "betas": [0.9, 0.999], "clip": 0.5},
        "evaluation": {"problems": settings.episodes, "quick": settings.episodes, "every": every},
        "checkpoint": batches,
    }
    if isinstance(settings, PPO):
        method = {"name": "ppo", "gamma": settings.gamma, "lam": settings.lam, "kl": 0.0, "value": 1.0}
        changes |= {
            "policy": {"hidden": [64, 64], "activation": "tanh"},
            "stages.rl.epochs": settings.epochs,
            "stages.rl.minibatches": rows // settings.batch,
            "stages.rl.method": method | {"value_clip": None, "entropy": settings.entropy},
            "stages.rl.but": {
                "sampling": {"part": "sampling.Fragments", "steps": settings.length},
                "reward": {"part": "rewards.EnvironmentReward"},
                "credit.credit.cut": "bootstrap",
            },
        }
        recipe = recipes.load("cartpole", changes)
    else:
        drawn = {"batch": settings.batch * settings.length, "steps": settings.length, "start": settings.start}
        changes |= {
            "policy": {"hidden": [256, 256], "activation": "relu", "head": "squashed_gaussian"},
            "stages.rl.minibatches": settings.length,
            "stages.rl.method": {"name": "sac", "gamma": settings.gamma, **drawn},
            "stages.rl.optimiser.clip": 1e6,
        }
        recipe = recipes.load("pendulum", changes)
    watch = Watch(rows)
    with tempfile.TemporaryDirectory() as folder:
        train(recipe, Path(folder) / "run", watchers=(watch,))
    return {"points": watch.points, "rate": (watch.batches - 1) * rows / watch.seconds}


def of_peer(name: str, seed: int) -> dict[str, Any]:
    """Trains stable-baselines3 on an environment, and returns what `ours` does."""
    import gymnasium
    import stable_baselines3 as sb3
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    torch.set_num_threads(1)
    settings = SETTINGS[name]
    rows, batches, every = counts(settings)

    def copies(count: int) -> Any:
        return DummyVecEnv([lambda: Monitor(gymnasium.make(name)) for _ in range(count)])

    tests = copies(1)
    tests.seed(10_000 + seed)

    class Measure(BaseCallback):  # type: ignore[misc]
        """Measures the return every so many steps."""

        def __init__(self) -> None:
            super().__init__()
            self.points, self.seconds = list[tuple[int, float]](), 0.0

        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:
            if self.num_timesteps >= rows * every * (len(self.points) + 1):
                begun = time.process_time()
                value, _ = evaluate_policy(self.model, tests, settings.episodes, deterministic=True)
                self.points.append((self.num_timesteps, float(value)))
                self.seconds += time.process_time() - begun

    shared: dict[str, Any] = {"seed": seed, "device": "cpu", "learning_rate": settings.lr, "gamma": settings.gamma}
    if isinstance(settings, PPO):
        shared |= {"n_steps": settings.length, "batch_size": settings.batch, "n_epochs": settings.epochs}
        shared |= {"gae_lambda": settings.lam, "ent_coef": settings.entropy}
        model: Any = sb3.PPO("MlpPolicy", copies(settings.copies), **shared)
    else:
        shared |= {"learning_starts": settings.start, "batch_size": settings.batch}
        model = sb3.SAC("MlpPolicy", copies(settings.copies), **shared)
    measure, begun = Measure(), time.process_time()
    # One batch more: evaluations are made where it begins.
    model.learn(rows * batches + rows, callback=measure)
    spent = time.process_time() - begun - measure.seconds
    return {"points": measure.points[: batches // every], "rate": model.num_timesteps / spent}


def job(name: str, side: str, seed: int, folder: Path) -> dict[str, Any]:
    """Returns a side's curve, from an earlier call or a process of its own."""
    file = folder / "curves" / f"{name}-{side}-{seed}.json"
    if not file.exists():
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{folder / 'peers'}", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "benchmarks.learning_curves", "--one", name, side, str(seed)]
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{name}, {side}, seed {seed}: {done.stderr[-2000:]}")
        file.parent.mkdir(exist_ok=True)
        file.write_text(done.stdout.strip().splitlines()[-1], encoding="utf-8")
        print(name, side, seed, file.read_text(encoding="utf-8"), flush=True)
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def install(folder: Path) -> None:
    """Installs the peer and the physics without what they pin, beside this environment."""
    if not (folder / "peers" / "mujoco").is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder / "peers")]
        subprocess.run([*pip, PEER, *BESIDE], check=True)


def markdown(data: dict[str, Any]) -> str:
    """The tables of all environments."""
    from polopt.metrics import t_interval
    from polopt.metrics.compare import paired_difference

    versions = ", ".join(f"{name} {number}" for name, number in data["peers"].items())
    lines = ["# Learning curves beside stable-baselines3", "", table.machine(data["about"]), "", f"{versions}.", ""]
    lines += [
        f"Mean return of episodes by the most likely actions, over seeds {', '.join(map(str, SEEDS))}, with 95 % "
        "intervals, at the same settings: rl-baselines3-zoo's without normalisation and with constant rates, or the "
        "defaults of stable-baselines3. *Difference*: polopt's less the other's, seed by seed, which share nothing but "
        "their number. *Steps a second*: of processor time of one thread, without evaluations, and without the first "
        "batch where polopt compiles (`compiled: true`).",
        "",
    ]
    for name, sides in data["curves"].items():
        settings = SETTINGS[name]
        kind = f"{type(settings).__name__}, " + ", ".join(
            f"{key} {value:,}" for key, value in dataclasses.asdict(settings).items() if key not in ("steps", "every")
        )
        lines += [f"## {name}", "", kind + ".", "", "|steps|polopt|stable-baselines3|difference|", "|--:|--:|--:|--:|"]
        steps = [int(point[0]) for point in sides["polopt"][0]["points"]]
        for i, at in enumerate(steps):
            values = {side: [run["points"][i][1] for run in runs] for side, runs in sides.items()}
            found = [t_interval(values[side]) for side in SIDES]
            found.append(paired_difference(values[SIDES[0]], values[SIDES[1]]))
            cells = [f"{x.estimate:,.1f} ({x.low:,.1f} to {x.high:,.1f})" for x in found]
            lines.append(f"|{at:,}|{'|'.join(cells)}|")
        rates = {side: float(np.exp(np.mean([np.log(run["rate"]) for run in runs]))) for side, runs in sides.items()}
        ratio = t_interval([float(np.log(a["rate"] / b["rate"])) for a, b in zip(*sides.values(), strict=True)])
        low, middle, high = (float(np.exp(x)) for x in (ratio.low, ratio.estimate, ratio.high))
        lines += [
            "",
            f"Steps a second: {rates[SIDES[0]]:,.0f} and {rates[SIDES[1]]:,.0f}, {middle:.1f} times as many "
            f"({low:.1f} to {high:.1f}).",
            "",
        ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where peer, physics and curves are kept")
    parser.add_argument("--only", nargs="+", default=[*SETTINGS], help="environments that are run; others stay")
    parser.add_argument("--processes", type=int, default=1, help="runs at a time")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        name, side, seed = options.one
        print(json.dumps((ours if side == "polopt" else of_peer)(name, int(seed))))
        return
    folder = options.folder.resolve()
    install(folder)
    about = table.about(ROOT, threads=1, module="learning_curves") | {"command": "python -m benchmarks.learning_curves"}
    kept = (
        json.loads(RESULTS.with_suffix(".json").read_text("utf-8"))["curves"]
        if RESULTS.with_suffix(".json").exists()
        else {}
    )
    with ThreadPoolExecutor(options.processes) as pool:
        for name in options.only:
            keys = [(side, seed) for seed in SEEDS for side in SIDES]
            runs = dict(zip(keys, pool.map(lambda key, name=name: job(name, *key, folder), keys), strict=True))
            kept[name] = {side: [runs[side, seed] for seed in SEEDS] for side in SIDES}
            about["load_after"] = os.getloadavg()
            sys.path.append(str(folder / "peers"))
            peers = {library: version(library) for library in ("stable-baselines3", "gymnasium", "mujoco")}
            data = {"about": about, "peers": peers, "curves": {key: kept[key] for key in SETTINGS if key in kept}}
            RESULTS.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
            RESULTS.with_suffix(".md").write_text(markdown(data), encoding="utf-8")


if __name__ == "__main__":
    main()
