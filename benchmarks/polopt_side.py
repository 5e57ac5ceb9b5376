"""One measurement of polopt: `polopt.training.launch.train`, as a user calls it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.spec import HERE, Spec
from benchmarks.worker import Measured, Stopwatch, resident, work


class Reached(Exception):
    """The target accuracy was reached, or all that is measured is done: the clock has stopped."""


class Watch:
    """A watcher of the training loop that takes times."""

    def __init__(self, spec: Spec) -> None:
        self.spec, self.clock = spec, Stopwatch()
        self.ready = 0
        self.steps: list[dict[str, float]] = []
        self.curve: list[tuple[float, float]] = []

    def begin(self, recipe: Any, about: Mapping[str, Any]) -> None:
        self.ready = resident()
        self.clock.resume()

    def step(self, record: Mapping[str, Any]) -> None:
        self.steps.append(
            {
                **self.clock.lap(),
                "rollout": record["seconds/rollout"],
                "reward": record["seconds/reward"],
                "learn": record["seconds/learn"],
                "tokens": record["tokens"],
                "longest": record["length/max"],
            }
        )
        if not self.spec.problems and len(self.steps) == self.spec.steps:
            raise Reached

    def evaluation(self, record: Mapping[str, Any]) -> None:
        # The first evaluation comes before the first batch, when everything is imported and made.
        if not self.curve:
            self.ready = resident()
        self.curve.append((self.clock.total, record["pass@1"]["estimate"]))
        if self.curve[-1][1] >= self.spec.target:
            raise Reached
        self.clock.resume()


def measure(spec: Spec) -> Measured:
    from polopt.config import parse
    from polopt.training.language_recipe import LanguageRecipe
    from polopt.training.launch import train

    stage = {
        "method": {"name": "grpo" if spec.reward == "world" else f"{HERE / 'first_token.py'}:grpo", "kl": 0.0},
        "group": spec.group,
        "steps": spec.steps,
        "rows": spec.rows,
        "minibatches": spec.minibatches,
        "micro_rows": spec.micro_rows,
        "optimiser": spec.optimiser,
    }
    # The last stage alone is evaluated. Where nothing is, one more follows it and is never begun.
    stages = {"rl": stage} if spec.problems else {"rl": stage, "never": {**stage, "steps": 1}}
    problems = max(1, spec.problems)
    settings = {
        "seed": spec.seed,
        "device": spec.device,
        "threads": spec.threads,
        "policy": {
            "model": spec.model,
            "dtype": spec.dtype,
            "compute": spec.compute,
            "checkpointing": spec.checkpointing,
        },
        "tasks": spec.world,
        "limit": spec.limit,
        "rollout": {"dtype": spec.sampling},
        "stages": stages,
        "evaluation": {"problems": problems, "every": spec.every, "quick": problems},
        "checkpoint": spec.steps,
    }
    watch = Watch(spec)
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(Reached):
        train(parse(LanguageRecipe, settings, "benchmark"), Path(folder) / "run", watchers=(watch,))
    return {"ready": watch.ready, "steps": watch.steps, "curve": watch.curve}


if __name__ == "__main__":
    work(measure)
