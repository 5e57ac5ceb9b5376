"""Updates a second of value-based and offline methods beside stable-baselines3 and d3rlpy.

python -m benchmarks.value_updates --folder F     installs the peers into F/peers once, and measures

A log of 100,000 random transitions with observations of 17 numbers and actions of 6, or of 6 choices, is in each side's
own store. An update draws 256 transitions and takes one step of every network that the method has, of two hidden layers
of 256, at the sides' common settings. Each side is a process of one thread, and they run in turn, `REPEATS` times;
processor time. polopt is measured as its runs are: it keeps freed memory (`polopt.heap`), with `compiled` false and
true; the graphs are made before the first reading.
Results are in benchmarks/results/value_updates.{json,md}.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import table
from benchmarks.methods import ROOT
from benchmarks.spec import HERE
from benchmarks.value_peers import install
from polopt.heap import freed_memory_kept
from polopt.metrics import t_interval
from polopt.training import recipe as recipes
from polopt.training.control.domain import ControlDomain
from polopt.training.control.recipe import ControlRecipe
from polopt.training.learner import Learner

RESULTS = HERE / "results" / "value_updates"
D, A, ROWS, BATCH, HIDDEN = 17, 6, 100_000, 256, 256
MINIBATCHES, READINGS, REPEATS = 50, 1, 8  # updates of a call, calls between two readings of the clock, readings
METHODS: dict[str, tuple[str, dict[str, Any], str]] = {
    "dqn": ("stable-baselines3", {"epsilon": 0.0, "explore": 0, "start": 0}, "action_values"),
    "sac": ("stable-baselines3", {"start": 0}, "squashed_gaussian"),
    "td3": ("stable-baselines3", {"start": 0, "noise": 0.0}, "deterministic"),
    "iql": ("d3rlpy", {}, "gaussian"),
    "cql": ("d3rlpy", {"hidden": [HIDDEN, HIDDEN]}, "squashed_gaussian"),
}
Update = Callable[[], None]


class RandomWorld(gymnasium.Env[Any, Any]):
    """Observations and rewards that are noise. choices: whether actions are choices."""

    def __init__(self, choices: bool = False) -> None:
        self.observation_space = Box(-np.inf, np.inf, (D,), np.float32)
        self.action_space = Discrete(A) if choices else Box(-1, 1, (A,), np.float32)
        self.draw = np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self.draw.normal(size=D).astype(np.float32), {}

    def step(self, action: Any) -> Any:
        return self.draw.normal(size=D).astype(np.float32), 0.0, False, False, {}


gymnasium.register("RandomWorld-v0", entry_point=RandomWorld, max_episode_steps=1000)


def log_of(choices: bool) -> dict[str, np.ndarray]:
    """Returns random transitions, of episodes of 1,000."""
    draw = np.random.default_rng(1)
    seen = draw.normal(size=(ROWS + 1, D)).astype(np.float32)
    action = draw.integers(A, size=ROWS) if choices else draw.uniform(-1, 1, (ROWS, A)).astype(np.float32)
    ends = np.arange(1, ROWS + 1) % 1000 == 0
    return {
        "observation": seen[:-1],
        "next_observation": seen[1:],
        "action": action,
        "reward": draw.normal(size=ROWS).astype(np.float32),
        "terminated": ends,
        "truncated": np.zeros(ROWS, bool),
    }


def ours(method: str, log: Path, compiled: bool = False) -> Update:
    """Returns a function that takes `MINIBATCHES` updates of polopt, as a run takes them."""
    _, settings, head = METHODS[method]
    changes = {
        "environment": {"id": "RandomWorld-v0", "settings": {"choices": method == "dqn"}},
        "transitions": str(log),
        "threads": 1,
        "compiled": compiled,
        "policy": {"hidden": [HIDDEN, HIDDEN], "activation": "relu", "head": head},
        "stages.rl.method": {"name": method, **settings, "batch": BATCH * MINIBATCHES},
        "stages.rl.but": {"sampling.logged": 1.0, "sampling.rows": BATCH * MINIBATCHES},
        "stages.rl.minibatches": MINIBATCHES,
        "stages.rl.steps": 10**6,
    }
    recipe = ControlRecipe.require(recipes.load("pendulum", changes))
    domain = ControlDomain(recipe)
    domain.use_folder(Path(tempfile.mkdtemp()))
    algorithm, source = domain.algorithms["rl"], domain.source("rl")
    learner = Learner(domain.policy, algorithm, recipe.stages["rl"], torch.Generator().manual_seed(0))

    def update() -> None:
        rows = algorithm.with_advantages(algorithm.sampling(source))
        learner.update(rows, 0)

    return update


def of_sb3(method: str, log: Path) -> Update:
    import stable_baselines3 as sb3
    from stable_baselines3.common.logger import Logger

    columns, world = np.load(log), RandomWorld(method == "dqn")
    kind = {"dqn": sb3.DQN, "sac": sb3.SAC, "td3": sb3.TD3}[method]
    model: Any = kind(
        "MlpPolicy",
        world,
        policy_kwargs={"net_arch": [HIDDEN, HIDDEN]},
        device="cpu",
        buffer_size=ROWS,
        batch_size=BATCH,
    )
    model.set_logger(Logger(None, []))
    kept = {"observations": "observation", "next_observations": "next_observation", "rewards": "reward"}
    for name, column in (kept | {"actions": "action", "dones": "terminated"}).items():
        buffer = getattr(model.replay_buffer, name)
        buffer[:] = columns[column].reshape(buffer.shape)
    model.replay_buffer.full = True
    return lambda: model.train(gradient_steps=MINIBATCHES, batch_size=BATCH)


def of_d3rlpy(method: str, log: Path) -> Update:
    import d3rlpy

    columns = np.load(log)
    data = d3rlpy.dataset.MDPDataset(
        observations=columns["observation"],
        actions=columns["action"],
        rewards=columns["reward"],
        terminals=columns["terminated"].astype(np.float32),
    )
    config: Any = {"iql": d3rlpy.algos.IQLConfig, "cql": d3rlpy.algos.CQLConfig}[method](batch_size=BATCH)
    model = config.create(device=False)
    model.build_with_dataset(data)

    def update() -> None:
        for _ in range(MINIBATCHES):
            model.update(data.sample_transition_batch(BATCH))

    return update


SIDES = ("polopt", "compiled", "peer")


def serve(side: str, method: str, log: Path, peers: Path, calls: Connection) -> None:
    """Makes a side's updates in this process, and answers each call: a number with the updates a second of that many
    calls, and None with the floating-point operations of an update."""
    sys.path.append(str(peers))
    torch.set_num_threads(1)
    if side == "peer":
        update = (of_sb3 if METHODS[method][0] == "stable-baselines3" else of_d3rlpy)(method, log)
    else:
        freed_memory_kept().__enter__()
        update = ours(method, log, side == "compiled")
    update()
    while (readings := calls.recv()) is not None:
        begun = time.process_time()
        for _ in range(readings):
            update()
        calls.send(readings * MINIBATCHES / (time.process_time() - begun))
    with FlopCounterMode(display=False) as counter:
        update()
    calls.send(counter.get_total_flops() / MINIBATCHES)


def rates(method: str, peers: Path) -> dict[str, Any]:
    """Returns the updates a second of each side, in turn, and the floating-point operations of one of ours."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.npz"
        np.savez(log, **log_of(method == "dqn"))  # type: ignore[arg-type]
        pipes = {side: context.Pipe() for side in SIDES}
        processes = [context.Process(target=serve, args=(s, method, log, peers, pipes[s][1])) for s in SIDES]
        for process in processes:
            process.start()
        found: dict[str, list[float]] = {side: [] for side in SIDES}
        for repeat in range(REPEATS + 1):
            for side, (pipe, _) in pipes.items():
                pipe.send(READINGS)
                reading = pipe.recv()
                if repeat:  # the first one also waits for the processes to begin
                    found[side].append(reading)
        flops = 0.0
        for side, (pipe, _) in pipes.items():
            pipe.send(None)
            counted = pipe.recv()
            flops = counted if side == "polopt" else flops
        for process in processes:
            process.join()
    return {**found, "flops": flops}


def products_a_second() -> float:
    """Returns the floating-point operations a second of products of the size of a layer's, on one thread."""
    x, w = torch.randn(BATCH, HIDDEN), torch.randn(HIDDEN, HIDDEN)
    best = 0.0
    for _ in range(20):
        begun = time.process_time()
        for _ in range(200):
            x @ w
        best = max(best, 200 * 2 * BATCH * HIDDEN * HIDDEN / (time.process_time() - begun))
    return best


def markdown(data: dict[str, Any]) -> str:
    it = data["about"]
    lines = ["# Updates of value-based and offline methods beside stable-baselines3 and d3rlpy", ""]
    lines += [f"{it['date']}, commit {it['commit']}, `{it['command']}`.", "", table.machine(it), ""]
    lines += [", ".join(f"{name} {version}" for name, version in data["peers"].items()) + ".", ""]
    lines += [
        f"Updates a second of processor time, one thread each, {BATCH} transitions of {D} numbers and {A} actions from "
        f"a store of {ROWS:,}, two hidden layers of {HIDDEN}: the mean of {REPEATS} readings, in turn with those of "
        "the others, and the ratio to the peer's with its 95 % interval over the readings. polopt keeps freed memory, "
        "as in every run; *compiled* is with `compiled: true`. *Floor*: the share of compiled time that the products "
        f"of matrices would take at {data['products'] / 1e9:,.0f} GFLOP/s, the best rate of such a product here.",
        "",
        "|method|polopt|compiled|peer|peer's|ratio|ratio, compiled|MFLOP|floor|",
        "|---|---:|---:|---|---:|---:|---:|---:|---:|",
    ]
    for name, row in data["rows"].items():
        mean = {side: sum(row[side]) / len(row[side]) for side in SIDES}
        cells = [f"`{name}`", f"{mean['polopt']:,.0f}", f"{mean['compiled']:,.0f}", METHODS[name][0]]
        cells.append(f"{mean['peer']:,.0f}")
        for side in ("polopt", "compiled"):
            ratio = t_interval([a / b for a, b in zip(row[side], row["peer"], strict=True)])
            cells.append(f"{ratio.estimate:.2f} ({ratio.low:.2f} to {ratio.high:.2f})")
        share = mean["compiled"] * row["flops"] / data["products"]
        lines.append(f"|{'|'.join([*cells, format(row['flops'] / 1e6, ',.0f'), f'{share:.0%}'])}|")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the peers are kept")
    parser.add_argument(
        "--only", nargs="*", default=[*METHODS], help="methods that are measured; the others' rows stay"
    )
    options = parser.parse_args()
    peers = install(options.folder.resolve())
    sys.path.append(str(peers))
    versions = {name: version(name) for name in ("stable-baselines3", "d3rlpy")}
    about = table.about(ROOT, threads=1, module="value_updates") | {"command": "python -m benchmarks.value_updates"}
    kept = (
        json.loads(RESULTS.with_suffix(".json").read_text(encoding="utf-8")) if len(options.only) < len(METHODS) else {}
    )
    rows = kept.get("rows", {})
    for method in options.only:
        rows[method] = rates(method, peers)
        print(method, rows[method], flush=True)
    about["load_after"] = os.getloadavg()
    data = {"about": about, "peers": versions, "products": products_a_second(), "rows": rows}
    RESULTS.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    RESULTS.with_suffix(".md").write_text(markdown(data), encoding="utf-8")
    print(markdown(data))


if __name__ == "__main__":
    main()
