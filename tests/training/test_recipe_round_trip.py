"""A recipe is read back as it was, whatever its values; changed at random, it is accepted or refused in a sentence."""

from __future__ import annotations

import copy
import math
import random
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import DIGITS, MODEL
from tiny_runs import recipe as tiny

import polopt as po
from polopt.cli import wording
from polopt.config import plain_data
from polopt.errors import UserError
from polopt.part import build
from polopt.training import recipe as recipes
from polopt.training.language_recipe import LanguageRecipe
from polopt.training.launch import create
from polopt.training.specs import OptimiserSpec

INF, NAN = math.inf, math.nan
RL = "stages.rl."

ODD = [
    INF,
    -INF,
    1e-5,
    1e22,
    -0.0,
    10**18,
    "1e3",
    ".inf",
    "null",
    "on",
    "2026-01-01",
    "",
    " x ",
    "#",
    "é\u2028\x85",
    None,
]


@pytest.mark.parametrize("value", [*ODD, {1: 2, "1": 3}, (1, (2, 3)), [[], {}], True], ids=lambda v: f"{v!r:.20}")
def test_a_recipe_is_read_back_as_it_was(value: Any, tmp_path: Path) -> None:
    """Untyped places hold any plain value; it comes back with its type, in a run's folder and on a cluster."""
    before = tiny(
        policy={"config": {**MODEL, "x": value}},
        tasks={**DIGITS, "x": value},
        stages={"rl": {"method": {"name": "grpo", "x": value}, "but": {"x": value}, "steps": 1, "rows": 8}},
    )
    again = LanguageRecipe.of_yaml(before.to_yaml())
    assert again == before
    stage = again.stages["rl"]
    assert isinstance(stage.method, dict)
    expected = [1, [2, 3]] if isinstance(value, tuple) else value
    for found in (again.policy.config["x"], again.tasks["x"], stage.method["x"], stage.but["x"]):
        assert (type(found), found) == (type(expected), expected)
        assert repr(found) == repr(expected)  # 0.0 is not -0.0
    dealt = before.on_cluster("local")
    assert dealt.cluster is not None
    assert dealt.model_copy(update={"cluster": None}) == before
    create(before, tmp_path / "run")
    assert LanguageRecipe.of_yaml((tmp_path / "run" / "recipe.yaml").read_text()) == before


def test_parts_and_supports_become_plain_data() -> None:
    """A part may be given as such; the recipe holds its data, and builds it again."""
    part = po.objectives.Clip(high=INF)
    plain = plain_data({"a": (part, po.Support(temperature=0.5))})
    assert plain["a"][0] == part.to_dict()
    assert repr(build(plain["a"][0])) == repr(part)
    assert plain["a"][1]["temperature"] == 0.5
    stage = {"method": "grpo", "but": {"objective.trust": part}, "steps": 1, "rows": 8, "group": 4}
    again = LanguageRecipe.of_yaml(tiny(stages={"rl": stage}).to_yaml())
    assert again.algorithms["rl"].objective.trust.high == INF


def test_numbers_are_read_as_people_write_them() -> None:
    settings = wording.settings([RL + "steps=1e3", RL + "optimiser.lr=1e-3", "seed=2e0", RL + "optimiser.clip=.inf"])
    stage = recipes.load("smoke", settings).stages["rl"]
    assert (stage.steps, stage.optimiser.lr, stage.optimiser.clip) == (1000, 1e-3, INF)
    assert OptimiserSpec().clip == 1.0


VALUES: list[Any] = [
    *(None, True, -1, 0, 3, 0.5, 1e30, INF, -INF, NAN, 10**23, "", "x", "nan", "a.b", "grpo", "x:y", "os:system"),
    *(
        [],
        [1],
        {},
        {"a": 1},
        {"name": [1]},
        {"part": []},
        {"part": "guards.X"},
        {"part": "credit.RelativeAdvantage"},
        {1: 2},
    ),
]


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path] * bool(path) + [p for key, value in items for p in places(value, (*path, key))]


def changed(rng: random.Random, data: Any) -> Any:
    """A copy of plain data with one to three values replaced, renamed or removed."""
    data = plain_data(data)
    for _ in range(rng.randint(1, 3)):
        *path, key = rng.choice(places(data) or [("x",)])
        inner = data
        for step in path:
            inner = inner[step]
        if isinstance(inner, dict) and rng.random() < 0.2:
            inner[f"{key}x"] = inner.pop(key, None)
        else:
            inner[key] = copy.deepcopy(rng.choice(VALUES))
    return data


def test_only_sentences_come_out() -> None:
    """Changed recipes, methods' settings, parts and `but`: each is accepted, and then read back, or refused."""
    smoke = recipes.load("smoke").model_dump()
    slugs, refusals = po.slugs("algorithm"), 0
    for seed in range(120):
        rng = random.Random(seed)
        slug = rng.choice(slugs)
        settings = {name: rng.choice(VALUES) for name in list(po.catalogue.find(slug).settings())[: rng.randint(0, 2)]}
        changes = [
            {"stages": changed(rng, smoke).get("stages")},
            {"policy": changed(rng, smoke).get("policy"), "evaluation": changed(rng, smoke).get("evaluation")},
            {RL + "method": {"name": slug, **settings}},
            {RL + "but": {"credit": changed(rng, po.method(slug).credit.to_dict())}},
            {RL + "but": {".".join(map(str, rng.choice(places(po.method("dr-grpo").to_dict())))): rng.choice(VALUES)}},
        ][seed % 5]
        try:
            recipe = recipes.load("smoke", changes)
        except UserError:
            refusals += 1
        else:
            assert LanguageRecipe.of_yaml(recipe.to_yaml()) == recipe
    assert 50 < refusals < 120
