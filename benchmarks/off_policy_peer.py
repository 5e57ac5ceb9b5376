"""The side of obp and SCOPE-RL of the comparison of off-policy estimators; run by benchmarks.off_policy alone.

python -m benchmarks.off_policy_peer logs.npz     their numbers and seconds, as JSON on standard output
"""

from __future__ import annotations

import importlib
import json
import logging
import sys
import time
from collections.abc import Callable
from importlib.metadata import distributions
from typing import Any

import numpy as np

REPEATS, RESAMPLES = 20, 1000


def timed(call: Callable[[], Any], repeats: int = REPEATS) -> tuple[Any, float]:
    """Returns a call's result, and the least processor time of some repeats, in seconds."""
    found, seconds = call(), []
    for _ in range(repeats):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return found, min(seconds)


def bandit(data: dict[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """Measures obp's estimators on its own logs."""
    ope = importlib.import_module("obp.ope")
    given = {key: data[key] for key in ("reward", "action", "pscore", "action_dist", "position")}
    model = {"estimated_rewards_by_reg_model": data["q"]}
    estimators = {
        "direct": (ope.DirectMethod(), given | model),
        "is": (ope.InverseProbabilityWeighting(), given),
        "is, self-normalised": (ope.SelfNormalizedInverseProbabilityWeighting(), given),
        "doubly robust": (ope.DoublyRobust(), given | model),
        "doubly robust, self-normalised": (ope.SelfNormalizedDoublyRobust(), given | model),
        "switch-dr": (ope.SwitchDoublyRobust(lambda_=5.0), given | model),
        "dr-shrinkage": (ope.DoublyRobustWithShrinkage(lambda_=10.0), given | model),
    }
    return {
        name: measured(
            lambda part=part, inputs=inputs: part.estimate_policy_value(**inputs),
            lambda part=part, inputs=inputs: part.estimate_interval(
                **inputs, n_bootstrap_samples=RESAMPLES, random_state=0
            ),
        )
        for name, (part, inputs) in estimators.items()
    }


def episodes(data: dict[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """Measures SCOPE-RL's estimators on simulated episodes."""
    ope = importlib.import_module("scope_rl.ope.discrete")
    steps, gamma = int(data["steps"]), float(data["gamma"])
    given = {"step_per_trajectory": steps, "gamma": gamma}
    given |= {key: data[key] for key in ("action", "reward", "pscore")}
    given["evaluation_policy_action_dist"] = data["action_dist"]
    model = {"state_action_value_prediction": data["q"]}
    estimators = {
        "direct": (ope.DirectMethod(), model),
        "trajectory is": (ope.TrajectoryWiseImportanceSampling(), {}),
        "pdis": (ope.PerDecisionImportanceSampling(), {}),
        "doubly robust": (ope.DoublyRobust(), model),
        "wis": (ope.SelfNormalizedTIS(), {}),
        "pdis, self-normalised": (ope.SelfNormalizedPDIS(), {}),
        "doubly robust, self-normalised": (ope.SelfNormalizedDR(), model),
    }
    found = {
        name: measured(
            lambda part=part, more=more: part.estimate_policy_value(**given, **more),
            lambda part=part, more=more: part.estimate_interval(
                **given, **more, n_bootstrap_samples=RESAMPLES, random_state=0
            ),
        )
        for name, (part, more) in estimators.items()
    }
    part = ope.CumulativeDistributionSNTIS()
    value, seconds = timed(
        lambda: part.estimate_cumulative_distribution_function(**{**given, "gamma": 1.0}, reward_scale=data["scale"]), 5
    )
    found["distribution of undiscounted returns"] = {"values": np.asarray(value)[1:].tolist(), "seconds": seconds}
    return found


def measured(estimate: Callable[[], float], interval: Callable[[], Any]) -> dict[str, Any]:
    """Returns the number, its seconds, and the seconds of its bootstrap interval."""
    value, seconds = timed(estimate)
    _, bootstrap = timed(interval, 2)
    return {"values": [float(value)], "seconds": seconds, "interval seconds": bootstrap}


def main() -> None:
    logging.disable(logging.WARNING)
    kind, file = sys.argv[1:]
    data = dict(np.load(file))
    found = {"obp": bandit, "scope-rl": episodes}[kind](data)
    versions = {d.metadata["Name"]: d.version for d in distributions() if d.metadata["Name"] in ("obp", "scope-rl")}
    print(json.dumps({"found": found, "versions": versions}))


if __name__ == "__main__":
    main()
