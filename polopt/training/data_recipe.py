"""The recipe of a method, a data file and a model, with the rest by default: `polopt train dpo --data F --model M`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polopt import catalogue
from polopt.config import ConfigError
from polopt.packages import path_of
from polopt.training.recipe import Recipe, recipe_of, set_by_path
from polopt.worlds.recipe import build_tasks
from polopt.worlds.rows import read_rows

# Fields of a row -> the world that reads it, the first that fits.
KINDS = {
    ("chosen", "rejected"): "pairs",
    ("completions", "scores"): "ranked",
    ("completion", "label"): "labelled",
    ("prompt", "answer"): "dataset",
}
ROWS, MICRO_ROWS, GROUP, EPOCHS, HELDOUT = 32, 8, 8, 3, 0.1
SAMPLING_STEPS = 100


def data_recipe(
    method: str | Mapping[str, Any],
    data: str,
    model: str,
    *,
    heldout: str | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Recipe:
    """Returns a recipe with one stage, of this method on this file, from this model.

    The row's fields decide how the file is read: chosen and rejected, completions and scores, completion and label, or
    prompt and answer. A method that learns from given answers takes three epochs over them in batches of 32, one that
    samples 100 batches of 32 answers, 8 to a prompt; the learning rate is 5e-6 and falls to 0. A tenth of the prompts
    is held out, or a file.

    changes: dotted ones, as `polopt train --set`.

    Raises:
        ConfigError: no such file or method, malformed rows, or a file of no known form.
    """
    given = {"name": method} if isinstance(method, str) else dict(method)
    algorithm = catalogue.sentence(given)
    kind = kind_of_file(Path(path_of(data, "--data")))
    tasks = {"kind": kind, "path": data, "heldout": HELDOUT if heldout is None else heldout}
    stage: dict[str, Any] = {"method": given, "rows": ROWS, "micro_rows": MICRO_ROWS}
    sampled = "rollouts" in algorithm.sampling.source_capabilities or algorithm.sampling.rollout_support is not None
    if sampled:
        steps = SAMPLING_STEPS
        stage |= {"group": GROUP} if algorithm.sampling.group_size > 1 else {}
    else:
        train = build_tasks(tasks, seed=0).train
        answers = sum(max(1, len(train[i].rated)) for i in range(len(train)))
        steps = math.ceil(EPOCHS * answers / ROWS)
    stage |= {"steps": steps, "optimiser": {"lr": 5e-6, "warmup": math.ceil(steps / 10), "decay": "linear"}}
    every = max(1, steps // 4)
    settings: dict[str, Any] = {
        "policy": {"model": model},
        "tasks": tasks,
        "limit": 256,
        "stages": {str(given["name"]).partition(":")[2] or str(given["name"]): stage},
        "evaluation": {"every": every},
        "checkpoint": {"every": every},
    }
    for key, value in (changes or {}).items():
        set_by_path(settings, key, value)
    recipe = recipe_of(settings, "the recipe")
    recipe.check("the recipe")
    return recipe


def kind_of_file(path: Path) -> str:
    """Returns the kind of world that reads a file, from its first row."""
    rows = read_rows(path, lambda row: set(row))
    first = rows[0][1]
    for fields, kind in KINDS.items():
        if first.issuperset(fields):
            return kind
    forms = "; ".join(" and ".join(fields) for fields in KINDS)
    raise ConfigError(
        f"{path}: its first row has the fields {', '.join(sorted(map(str, first)))}, and none of the forms that are "
        f"read without more settings: {forms}; write a recipe with the names of its fields"
    )
