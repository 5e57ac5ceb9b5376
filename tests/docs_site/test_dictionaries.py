"""The pages for those who come from another library name settings that exist, on both sides."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import polopt as po
from benchmarks import recipe_page
from polopt.part import settings_of
from polopt.training.control.recipe import ControlRecipe

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"`([^`]+)`")
FIELDS = {place: set(recipe_page.fields(model)) for place, model in recipe_page.SECTIONS}
CONTROL = {place: set(recipe_page.fields(model)) for place, model in recipe_page.sections("", ControlRecipe, set())}


def rows(page: str) -> Iterator[tuple[str, str]]:
    """The first two cells of each row of the page's table of names."""
    text = (ROOT / "docs" / f"{page}.md").read_text().partition("## Names")[2].partition("\n## ")[0]
    found = re.findall(r"^\| (`.*?) \| (.*?) \|", text, re.MULTILINE)
    assert len(found) > 15
    yield from found


def ours_exists(name: str, fields: dict[str, set[str]]) -> bool:
    """Returns whether a recipe's field, a part, a part's setting, or a name of polopt exists."""
    place, _, last = name.rpartition(".")
    if last in fields.get(place, ()):
        return True
    room, _, rest = name.partition(".")
    if room == "po":
        return hasattr(po, rest)
    part, _, setting = rest.partition(".")
    found: Any = getattr(getattr(po, room, None), part, None)
    return found is not None and (not setting or setting in {field.name for field in settings_of(found)})


@pytest.mark.parametrize(
    ("page", "fields"), [("from-trl", FIELDS), ("from-verl", FIELDS), ("from-stable-baselines3", FIELDS | CONTROL)]
)
def test_our_side_exists(page: str, fields: dict[str, set[str]]) -> None:
    for _, cell in rows(page):
        for name in CODE.findall(cell):
            assert ours_exists(name, fields), f"{page}: {name}"


def test_a_name_that_is_not_there_is_seen() -> None:
    assert ours_exists("stages.NAME.optimiser.lr", FIELDS)
    assert ours_exists("objectives.Clip.low", FIELDS)
    for name in ("stages.NAME.optimiser.rate", "objectives.Clip.most", "objectives.Clamp", "po.fit", "epochs"):
        assert not ours_exists(name, FIELDS)


def test_names_of_trl_exist() -> None:
    trl = pytest.importorskip("trl")
    known = {field.name for field in dataclasses.fields(trl.GRPOConfig)}
    known |= set(inspect.signature(trl.GRPOTrainer.__init__).parameters)
    for cell, _ in rows("from-trl"):
        assert {name.partition("=")[0] for name in CODE.findall(cell)} <= known


def test_names_of_verl_exist() -> None:
    verl = pytest.importorskip("verl")
    settings = Path(verl.__file__).parent / "trainer" / "config" / "_generated_ppo_trainer.yaml"
    config = yaml.safe_load(settings.read_text())
    for cell, _ in rows("from-verl"):
        for name in CODE.findall(cell):
            found = config
            for key in name.split("."):
                assert key in found, name
                found = found[key]
