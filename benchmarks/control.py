"""PPO on CartPole beside stable-baselines3: steps and time until it is solved, and the loss of one batch.

python -m benchmarks.control --folder F     installs stable-baselines3 into F/peers once, and compares

Solved: a mean return of 475 over 100 greedy episodes, measured every 8,192 steps. Both sides train in turn on the same
seeds, one thread each, and processor time is counted without the evaluations and without imports. polopt's side is the
recipe `cartpole` with `compiled: true`, whose first batch, in which its graphs are made, is counted apart; the other
side has rl-baselines3-zoo's settings. Results are in benchmarks/results/control.{json,md}.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import table
from benchmarks.control_peer import EPISODES, EVERY, GOAL
from benchmarks.methods import ROOT
from benchmarks.spec import HERE
from polopt import catalogue
from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.metrics import t_interval
from polopt.policies.network import NetworkPolicy
from polopt.training import recipe as recipes
from polopt.training.launch import train

RESULTS = HERE / "results" / "control"
PEER = "stable-baselines3==2.9.2"
SEEDS = (6, 7, 8, 9, 10)
# Our names of the weights, and theirs.
NAMES = {f"actor.{2 * i}": f"mlp_extractor.policy_net.{2 * i}" for i in range(2)} | {"actor.4": "action_net"}
NAMES |= {f"critic.{2 * i}": f"mlp_extractor.value_net.{2 * i}" for i in range(2)} | {"critic.4": "value_net"}
Point = tuple[int, float, float]


def install(folder: Path) -> Path:
    """Installs the peer without what it pins, beside this environment, and returns its folder."""
    peers = folder / "peers"
    if not (peers / "stable_baselines3").is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--target", str(peers), PEER, "cloudpickle"], check=True)
    return peers


def peer(peers: Path, *arguments: str) -> dict[str, Any]:
    """Runs the peer's side in a process of its own, and returns what it found."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{peers}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.control_peer", *arguments]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


class Watch:
    """A watcher that counts processor time between evaluations, the first batch's apart, and keeps each evaluation's
    return."""

    def __init__(self, rows: int) -> None:
        self.rows, self.seconds, self.first, self.points = rows, 0.0, 0.0, list[Point]()

    def begin(self, recipe: Any, about: Mapping[str, Any]) -> None:
        self.last = time.process_time()

    def step(self, record: Mapping[str, Any]) -> None:
        now = time.process_time()
        if self.first:
            self.seconds += now - self.last
        else:
            self.first = now - self.last
        self.last = now

    def evaluation(self, record: Mapping[str, Any]) -> None:
        self.last = time.process_time()
        if record["step"]:
            self.points.append((record["step"] * self.rows, self.seconds, record["return"]["estimate"]))


def ours(seed: int) -> tuple[list[Point], float]:
    """Trains the recipe to its end. Returns (environment steps, seconds, return) of its evaluations, and the seconds of
    the first batch, which stand for another batch's in the former."""
    fragment = recipes.load("cartpole").stages["rl"].but["sampling"]["steps"]
    rows = recipes.load("cartpole").stages["rl"].rows * fragment
    changes = {
        "seed": seed,
        "threads": 1,
        "compiled": True,
        "evaluation.every": EVERY // rows,
        "evaluation.quick": EPISODES,
    }
    watch = Watch(rows)
    with tempfile.TemporaryDirectory() as folder:
        train(recipes.load("cartpole", changes), Path(folder) / "run", watchers=(watch,))
    batch = watch.seconds / (watch.points[-1][0] / rows - 1)
    return [(steps, seconds + batch, value) for steps, seconds, value in watch.points], watch.first


def solved(points: list[Point]) -> dict[str, Any]:
    """Returns the steps and seconds of the first evaluation at the goal; None for both if there is none."""
    first = next(((steps, seconds) for steps, seconds, value in points if value >= GOAL), (None, None))
    return {"steps": first[0], "seconds": first[1], "points": points}


def same_batch(path: str) -> dict[str, float]:
    """Returns the largest differences of loss and gradient from those of the peer's update, relative to the largest."""
    data = np.load(path)
    policy = NetworkPolicy(observations=4, actions=2)
    names = {f"{own}.{kind}": f"{other}.{kind}" for own, other in NAMES.items() for kind in ("weight", "bias")}
    policy.load_state_dict({own: torch.as_tensor(data[f"weight.{other}"]) for own, other in names.items()})
    rows = {n: torch.as_tensor(data[n]).transpose(0, 1) for n in ("rewards", "values", "log_probs", "over")}
    terminated = rows["over"].bool()
    final_value = torch.zeros_like(rows["values"])
    final_value[:, -1] = torch.as_tensor(data["last_value"])
    batch = Experience(
        mask=torch.ones_like(terminated),
        rollout_logp=rows["log_probs"],
        reward=rows["rewards"],
        terminated=terminated,
        truncated=torch.zeros_like(terminated),
        value=rows["values"],
        final_value=final_value,
        group=torch.arange(len(terminated)),
        extras={
            "observation": torch.as_tensor(data["observation"]).transpose(0, 1).float(),
            "action": torch.as_tensor(data["actions"]).transpose(0, 1).long().flatten(2)[..., 0],
        },
    )
    settings = {"gamma": 0.98, "lam": 0.8, "kl": 0.0, "value": 1.0, "value_clip": None, "entropy": 0.01}
    reward = {"part": "rewards.EnvironmentReward"}
    algorithm = catalogue.sentence({"name": "ppo", **settings}).but(
        {"reward": reward, "credit.credit.cut": "bootstrap", "sampling": {"part": "sampling.Fragments"}}
    )
    assert isinstance(algorithm, Algorithm)
    batch = algorithm.with_advantages(batch)
    loss = algorithm.objective(batch, policy.evaluate(batch, algorithm.objective.required_outputs))
    loss.loss.backward()
    apart, largest = 0.0, 0.0
    for name, parameter in policy.named_parameters():
        theirs = torch.as_tensor(data[f"gradient.{names[name]}"])
        assert parameter.grad is not None
        apart = max(apart, float((parameter.grad - theirs).abs().max()))
        largest = max(largest, float(theirs.abs().max()))
    return {
        "loss": float(data["loss"]),
        "loss_difference": abs(float(loss.loss.detach()) - float(data["loss"])) / abs(float(data["loss"])),
        "gradient_difference": apart / largest,
        "clip_fraction": float(data["clip_fraction"]),
    }


def markdown(data: dict[str, Any]) -> str:
    """The table of both sides, seed by seed."""
    lines = [f"# PPO on CartPole-v1 beside stable-baselines3 {data['peers']['stable-baselines3']}", ""]
    lines += [
        f"Until a mean return of {GOAL:.0f} over {EPISODES} greedy episodes, measured every {EVERY:,} steps; processor "
        "time of one thread, without evaluations and imports. The sides trained in turn on one machine. Settings: the "
        "recipe `cartpole` with `compiled: true`, and rl-baselines3-zoo's for its side. The recipe was chosen on seeds "
        "101 to 108, after an earlier one, with fragments of 128 copies, had solved four of seeds 1 to 5. Its first "
        f"batch, in which the graphs are made, took {np.mean(data['first_batch']):.1f} seconds; it is counted as one "
        "of the others.",
        "",
        "|seed|polopt: steps|seconds|steps/s|stable-baselines3: steps|seconds|steps/s|seconds, theirs / ours|",
        "|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    ratios = []
    for seed, row in data["seeds"].items():
        cells = [seed]
        for side in (row["polopt"], row["stable-baselines3"]):
            steps, seconds, _ = side["points"][-1]
            known = side["steps"] is not None
            cells += [f"{side['steps']:,}", f"{side['seconds']:.1f}"] if known else ["not reached", f"> {seconds:.1f}"]
            cells += [f"{steps / seconds:,.0f}"]
        both = [row[side]["seconds"] for side in ("polopt", "stable-baselines3")]
        if None not in both:
            ratios.append(both[1] / both[0])
        cells.append("" if None in both else f"{ratios[-1]:.1f}")
        lines.append(f"|{'|'.join(cells)}|")
    if len(ratios) > 1:
        found = t_interval([float(np.log(ratio)) for ratio in ratios])
        middle, low, high = (float(np.exp(x)) for x in (found.estimate, found.low, found.high))
        lines += ["", f"Geometric mean of the ratio: {middle:.1f} [{low:.1f}, {high:.1f}], {len(ratios)} seeds."]
    same = data["same_batch"]
    lines += [
        "",
        f"One batch of 512 decisions, {same['clip_fraction']:.0%} of their ratios beyond the clip, with advantages, "
        f"entropy and value loss: the relative difference of the loss is {same['loss_difference']:.1e}, that of the "
        f"gradient, relative to its largest entry, {same['gradient_difference']:.1e}.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the peer is kept")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="of the runs; the table has the defaults")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    about = table.about(ROOT, threads=1, module="control") | {"command": "python -m benchmarks.control"}
    peers = install(options.folder.resolve())
    batch = str(options.folder.resolve() / "batch.npz")
    versions = peer(peers, "update", batch)["versions"]
    data: dict[str, Any] = {"about": about, "peers": versions, "same_batch": same_batch(batch)}
    data |= {"first_batch": [], "seeds": {}}
    for seed in options.seeds:
        points, first = ours(seed)
        data["first_batch"].append(first)
        sides = {"polopt": points, "stable-baselines3": peer(peers, "train", str(seed))["points"]}
        data["seeds"][str(seed)] = {side: solved([tuple(p) for p in points]) for side, points in sides.items()}
        print(seed, {s: (v["steps"], v["seconds"]) for s, v in data["seeds"][str(seed)].items()}, flush=True)
    about["load_after"] = os.getloadavg()
    RESULTS.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    RESULTS.with_suffix(".md").write_text(markdown(data), encoding="utf-8")
    print(markdown(data))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
