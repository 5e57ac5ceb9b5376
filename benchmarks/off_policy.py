"""Off-policy estimators beside obp and SCOPE-RL: the same numbers, and how long they take.

python -m benchmarks.off_policy --folder F     installs both into F/peers once, and compares

obp's bundled logs of a shop's recommendations (10,000 decisions of a uniform policy), and simulated episodes, with the
same model's values for both sides. One thread each, processor time, the least of twenty repeats. Peers run in a process
of their own with the packages that they pin. Results are in benchmarks/results/off_policy.{json,md}.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import table
from benchmarks.methods import ROOT
from benchmarks.off_policy_peer import RESAMPLES, timed
from benchmarks.spec import HERE
from polopt.lab.logged import long_walk, with_values
from polopt.metrics import (
    DirectMethod,
    DoublyRobust,
    LoggedDecisions,
    LoggedMetric,
    LoggedValues,
    OffPolicyEstimator,
    PerDecisionImportanceSampling,
    ReturnDistribution,
    ShrunkWeights,
    SwitchedWeights,
    TrajectoryImportanceSampling,
)

RESULTS = HERE / "results" / "off_policy"
PEERS = "obp==0.5.7 scope-rl==0.2.1 d3rlpy==2.8.1 pyieoe seaborn gym==0.26.2 gym_notices structlog dataclasses_json"
PEERS += " typing_inspect mypy_extensions marshmallow colorama h5py pytorch_revgrad"
GIVEN = LoggedValues()
Logs = dict[str, np.ndarray]


def install(folder: Path) -> Path:
    """Installs the peers without what they pin, beside this environment, and returns their folder."""
    peers = folder / "peers"
    if not (peers / "obp").is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--ignore-requires-python"]
        subprocess.run([*pip, "--target", str(peers), *PEERS.split()], check=True)
    return peers


def shop(peers: Path) -> tuple[LoggedDecisions, Logs]:
    """Returns obp's log of a uniform policy, with the policy of its other log as the target, for both sides."""

    def columns(policy: str, *names: str) -> list[np.ndarray]:
        with (peers / "obp" / "dataset" / "obd" / policy / "all" / "all.csv").open() as file:
            rows = list(csv.DictReader(file))
        return [np.array([float(row[name]) for row in rows]) for name in names]

    item, position, click, chance = columns("random", "item_id", "position", "click", "propensity_score")
    action, place = item.astype(int), position.astype(int) - 1
    A, L = action.max() + 1, place.max() + 1
    # The target policy: how often the other policy shows an item at a position; the model: clicks by item and position.
    counts, clicks, shown = np.ones((A, L)), np.full((A, L), 0.01), np.full((A, L), 2.0)
    other, there = (x.astype(int) for x in columns("bts", "item_id", "position"))
    np.add.at(counts, (other, there - 1), 1)
    np.add.at(clicks, (action, place), click)
    np.add.at(shown, (action, place), 1)
    target, q = counts / counts.sum(0), clicks / shown
    n = len(action)
    logs = {"reward": click, "action": action, "pscore": chance, "position": place}
    logs |= {"action_dist": np.tile(target, (n, 1, 1)), "q": np.tile(q, (n, 1, 1))}
    decisions = LoggedDecisions(
        lengths=np.ones(n),
        reward=click[:, None],
        behaviour_logp=np.log(chance)[:, None],
        target_logp=np.log(target[action, place])[:, None],
        q=q[action, place][:, None],
        v=(target * q).sum(0)[place][:, None],
    )
    return decisions, logs


def walk() -> tuple[LoggedDecisions, Logs]:
    """Returns 10,000 simulated episodes of ten decisions, with half of the true values as a model's, for both sides."""
    steps, gamma = 10, 0.95
    problem, behaviour, target = long_walk(steps, 0)
    q = problem.values(target, gamma)[0] / 2
    log = with_values(problem.simulate(behaviour, target, 10_000, 1), q, target)
    assert log.state is not None
    assert log.action is not None
    place = np.arange(steps)[None]
    logs = {"steps": np.array(steps), "gamma": np.array(gamma), "action": log.action.ravel()}
    logs |= {"reward": log.reward.ravel(), "pscore": behaviour[log.state, log.action].ravel()}
    logs |= {"action_dist": target[log.state].reshape(-1, 2), "q": q[place, log.state].reshape(-1, 2)}
    gain = log.returns(1.0)
    logs["scale"] = np.linspace(gain.min() - 1, gain.max() + 1, 200)
    return log, logs


def bandit_estimators() -> dict[str, OffPolicyEstimator]:
    return {
        "direct": DirectMethod(model=GIVEN),
        "is": TrajectoryImportanceSampling(),
        "is, self-normalised": TrajectoryImportanceSampling(self_normalised=True),
        "doubly robust": DoublyRobust(model=GIVEN),
        # The weights of the values are 1, which are their own mean.
        "doubly robust, self-normalised": DoublyRobust(model=GIVEN, self_normalised=True),
        "switch-dr": DoublyRobust(model=GIVEN, limit=SwitchedWeights(most=5.0)),
        "dr-shrinkage": DoublyRobust(model=GIVEN, limit=ShrunkWeights(strength=10.0)),
    }


def episode_estimators(gamma: float) -> dict[str, OffPolicyEstimator]:
    return {
        "direct": DirectMethod(gamma=gamma, model=GIVEN),
        "trajectory is": TrajectoryImportanceSampling(gamma=gamma),
        "pdis": PerDecisionImportanceSampling(gamma=gamma),
        "doubly robust": DoublyRobust(gamma=gamma, model=GIVEN),
        "wis": TrajectoryImportanceSampling(gamma=gamma, self_normalised=True),
        "pdis, self-normalised": PerDecisionImportanceSampling(gamma=gamma, self_normalised=True),
        "doubly robust, self-normalised": DoublyRobust(gamma=gamma, model=GIVEN, self_normalised=True),
    }


def measured(metric: OffPolicyEstimator, log: LoggedDecisions) -> dict[str, Any]:
    """Returns the number and seconds: of the estimate alone, of all that is reported with Student's interval, and with
    a bootstrap interval of as many resamples as the peers'."""
    value, seconds = timed(lambda: metric.terms(log).estimate())
    _, report = timed(lambda: metric(log))
    _, bootstrap = timed(lambda: metric.but(interval="bootstrap", resamples=RESAMPLES)(log), 2)
    return {"values": [value], "seconds": seconds, "report seconds": report, "interval seconds": bootstrap}


def distribution(log: LoggedDecisions, scale: np.ndarray) -> dict[str, Any]:
    """Returns F at the upper edges of a grid, and the seconds. Without a discount: SCOPE-RL's is gamma^(t + 1) here."""
    metric: LoggedMetric = ReturnDistribution(resamples=1)
    found, seconds = timed(lambda: metric(log).rows, 5)
    place = np.searchsorted(found["return"], scale[1:], side="left") - 1
    values = np.where(place >= 0, found["cdf"][np.maximum(place, 0)], 0.0)
    return {"values": values.tolist(), "seconds": seconds, "report seconds": seconds}


def beside(kind: str, logs: Logs, peers: Path, folder: Path) -> dict[str, Any]:
    """Runs the peers' side in a process of its own."""
    file = folder / f"{kind}.npz"
    np.savez(file, **logs)  # type: ignore[arg-type]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{peers}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.off_policy_peer", kind, str(file)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True, cwd=ROOT)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compared(own: dict[str, Any], other: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns a row for each estimator: the largest difference of the numbers, and times."""
    rows = []
    for name, ours in own.items():
        theirs = other[name]
        off = float(np.abs(np.subtract(ours["values"], theirs["values"])).max())
        rows.append({"name": name, "value": ours["values"][0], "difference": off, "own": ours, "peer": theirs})
    return rows


def markdown(data: dict[str, Any]) -> str:
    it = data["about"]
    lines = ["# Off-policy estimators beside obp and SCOPE-RL", ""]
    lines += [f"{it['date']}, commit {it['commit']}, `{it['command']}`.", "", table.machine(it), ""]
    lines += [", ".join(f"{name} {version}" for name, version in data["peers"].items()) + ".", ""]
    lines += [
        "One thread each, processor time in milliseconds, the least of 20 repeats (2 for the bootstrap). *Estimate*: "
        "the number alone. *Report*: what `polopt measure` prints, with Student's interval, effective sample sizes and "
        f"cautions. *Bootstrap*: an interval of {RESAMPLES:,} resamples; ours is bias-corrected up to 5,000 episodes. "
        "The peers' numbers and intervals are of their own functions; differences are absolute.",
    ]
    for title, rows in data["rows"].items():
        lines += ["", f"## {title}", ""]
        lines += ["|estimator|value|difference|estimate, ms|peer|ratio|report, ms|bootstrap, ms|peer|ratio|"]
        lines += ["|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"]
        for row in rows:
            own, peer = row["own"], row["peer"]
            cells = [row["name"], f"{row['value']:.6g}", f"{row['difference']:.1e}", *_times(own, peer, "seconds")]
            cells += [f"{1e3 * own['report seconds']:.2f}", *_times(own, peer, "interval seconds")]
            lines.append(f"|{'|'.join(cells)}|")
    return "\n".join(lines) + "\n"


def _times(own: dict[str, Any], peer: dict[str, Any], name: str) -> list[str]:
    if name not in own:
        return ["", "", ""]
    return [f"{1e3 * own[name]:.2f}", f"{1e3 * peer[name]:.2f}", f"{peer[name] / own[name]:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the peers and the logs are kept")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    about = table.about(ROOT, threads=1, module="off_policy") | {"command": "python -m benchmarks.off_policy"}
    peers = install(options.folder.resolve())
    rows, versions = {}, {}
    log, logs = shop(peers)
    found = beside("obp", logs, peers, options.folder)
    own = {name: measured(metric, log) for name, metric in bandit_estimators().items()}
    rows["obp's bundled log: 10,000 decisions"] = compared(own, found["found"])
    versions |= found["versions"]
    log, logs = walk()
    gamma = float(logs["gamma"])
    found = beside("scope-rl", logs, peers, options.folder)
    own = {name: measured(metric, log) for name, metric in episode_estimators(gamma).items()}
    own["distribution of undiscounted returns"] = distribution(log, logs["scale"])
    rows["Beside SCOPE-RL: 10,000 episodes of ten decisions"] = compared(own, found["found"])
    about["load_after"] = os.getloadavg()
    data = {"about": about, "peers": versions | found["versions"], "rows": rows}
    RESULTS.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    RESULTS.with_suffix(".md").write_text(markdown(data), encoding="utf-8")
    print(markdown(data))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
