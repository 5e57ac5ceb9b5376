"""Worlds, recipes and policies so small that a whole run takes a second or two."""

from __future__ import annotations

import dataclasses
import functools
import json
import random
import time
from pathlib import Path
from typing import Any

import torch

from polopt.config import parse
from polopt.policies.factory import new_policy
from polopt.policies.language import LanguagePolicy
from polopt.training.language import LanguageDomain
from polopt.training.language_recipe import LanguageRecipe
from polopt.training.loop import Training
from polopt.training.run import Run
from polopt.worlds import OneAnswer, Task, TaskList, TaskSplit

MODEL = {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64, "initializer_range": 0.2}
CLOCKS = ("seconds", "tokens_per_second")


@functools.cache
def _digit(name: str) -> int:
    return random.Random(name).randrange(10)


class Digits:
    """`size` questions after an even digit, each shown with some digit as its solution.

    Any even digit pays 1, an odd one 0.5, everything else the share 0.01 per different character: answers of a
    policy that knows nothing differ in reward as well.
    """

    turns = 1

    def __init__(self, size: int, seed: int = 0) -> None:
        self.size, self.seed = size, seed

    kinds = ("digit",)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Task:
        digit = _digit(f"{self.seed}/{index}")
        return Task(f"digit/{self.seed}/{index}", "digit", f"even {index % 7}", str(digit), {})

    def episode(self, task: Task) -> OneAnswer:
        return OneAnswer(task, self.score)

    def score(self, text: str, task: Task) -> tuple[float, dict[str, Any]]:
        if len(text) == 1 and text.isdigit():
            return (1.0 if int(text) % 2 == 0 else 0.5), {}
        return 0.01 * len(set(text)), {}


def digits(size: int, seed: int) -> TaskSplit:
    heldout = Digits(20, seed=-1)
    texts = [f"even {i} 2 4 6 8" for i in range(7)]
    return TaskSplit(Digits(size, seed), TaskList([heldout[i] for i in range(20)], heldout.score), texts)


class SlowDigits(Digits):
    """As `Digits`; looking at an answer takes `delay` seconds, as asking somebody else would."""

    def __init__(self, size: int, seed: int, delay: float) -> None:
        super().__init__(size, seed)
        self.delay = delay

    def score(self, text: str, task: Task) -> tuple[float, dict[str, Any]]:
        time.sleep(self.delay)
        return super().score(text, task)


def slow_digits(size: int, seed: int, delay: float) -> TaskSplit:
    return dataclasses.replace(digits(size, seed), train=SlowDigits(size, seed, delay))


DIGITS = {"kind": f"{Path(__file__).resolve()}:digits", "size": 1000}
GUESS = {"kind": "guess-number", "low": 1, "high": 5, "turns": 3, "train": 50, "heldout": 10}


def recipe(**changes: Any) -> LanguageRecipe:
    """A short run on digits; changes replace whole keys."""
    data = {
        "threads": 1,
        "policy": {"config": MODEL},
        "tasks": DIGITS,
        "limit": 3,
        "stages": {"rl": {"method": "grpo", "steps": 4, "rows": 8, "group": 4}},
        "evaluation": {"problems": 8, "quick": 4},
        "checkpoint": 2,
    }
    return parse(LanguageRecipe, data | changes, "test")


def policy(dtype: str = "float64", *, critic: bool = False, world: Any = None, config: Any = None) -> LanguagePolicy:
    tasks = world or Digits(50)
    texts = [(t.kind, t.prompt, t.solution or "") for t in (tasks[i] for i in range(len(tasks)))]
    made = new_policy(config or MODEL, texts, seed=0, dtype=dtype, critic=critic)
    if made.critic is not None:
        torch.nn.init.normal_(made.critic.weight, generator=torch.Generator().manual_seed(1))
    return made


def lines(folder: Path, name: str) -> list[dict[str, Any]]:
    """A log without its clock times."""
    path = folder / f"{name}.jsonl"
    records = [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []
    return [{k: v for k, v in record.items() if not k.startswith(CLOCKS)} for record in records]


def outcome(folder: Path) -> dict[str, Any]:
    """Everything a run leaves behind that is not a clock time."""
    last = max(p for p in (folder / "checkpoints").iterdir() if p.name.isdigit())
    state = json.loads((last / "state.json").read_text())
    return {
        "policy": (folder / "policy" / "model.safetensors").read_bytes(),
        "state": (last / "state.safetensors").read_bytes(),
        "position": {k: state[k] for k in ("step", "stage", "stage_step", "position")},
        **{name: lines(folder, name) for name in ("metrics", "evaluations", "samples", "rollouts")},
    }


class Stop(Exception):
    pass


class StopAt:
    """A watcher that ends the run right after step `at` was logged."""

    def __init__(self, at: int) -> None:
        self.at = at

    def begin(self, recipe: LanguageRecipe, about: Any) -> None: ...
    def evaluation(self, record: Any) -> None: ...

    def step(self, record: Any) -> None:
        if record["step"] == self.at:
            raise Stop


def training_of(
    made: LanguageRecipe, run: Run, watchers: tuple[Any, ...] = (), team: Any = None, crew: Any = None
) -> Training:
    """The training of a recipe in a folder that holds it."""
    return Training(made, run, LanguageDomain(made, team, crew), watchers, team)
