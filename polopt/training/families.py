"""Families of environments: the scores of several comparisons that differ in settings of the environment."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from polopt.config import ConfigError
from polopt.errors import RunError
from polopt.metrics import Comparison, FamilyScores
from polopt.training import compare as comparisons
from polopt.training import recipe as recipes
from polopt.yaml_data import by_path, read_yaml

# Settings of a recipe that do not change the environment.
ASIDE = ("seed", "threads", "checkpoint", "stages.", "policy.", "evaluation.")


def compare_family(
    methods: Sequence[comparisons.Method],
    family: Mapping[str, Sequence[Any]],
    *,
    seeds: int,
    folder: Path | str | None = None,
    recipe: Path | str | None = None,
    changes: Mapping[str, Any] | None = None,
    ready: Callable[[str, Comparison, Path], None] = lambda *_: None,
    **options: Any,
) -> FamilyScores:
    """Compares methods in every setting of a family of environments, and returns their scores.

    family: values by the path of a setting of the recipe; the family is every combination of them. folder gets a folder
        for each setting, which holds its comparison. options: as for `compare`. ready: called with a setting's name,
        its comparison and its folder, once it is there.

    Raises:
        ConfigError: no family, fewer than two methods or seeds, or a wrong recipe, in any of its settings.
        RunError: as `compare`.
    """
    if len(methods) < 2 or seeds < 2:
        raise ConfigError(
            "a family compares two methods or more, and its intervals are over seeds, two or more; found "
            f"{len(methods)} of methods and {seeds} of seeds"
        )
    settings = family_settings(family, changes or {})
    for setting in settings.values():  # every recipe before the first run
        for method in methods:
            recipes.load(recipe, {**(changes or {}), **setting, "seed": 0}, method=method)
    place = comparisons.default_folder(methods) if folder is None else Path(folder)
    for name, setting in settings.items():
        changed = {**(changes or {}), **setting}
        found = comparisons.compare(
            methods, seeds=seeds, folder=place / name, recipe=recipe, changes=changed, **options
        )
        ready(name, found, place / name)
    return compared_family([place / name for name in settings])


def family_settings(family: Mapping[str, Sequence[Any]], changes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the settings of a family by name: every combination of the values.

    Raises:
        ConfigError: one setting alone, a value twice, or a path that is not the environment's or is changed anyway.
    """
    for path, values in family.items():
        if path in ("seed", "threads", "checkpoint") or path.startswith(tuple(x for x in ASIDE if x.endswith("."))):
            raise ConfigError(f"{path} does not change the environment: a family is of its settings, as tasks.size")
        if path in changes:
            raise ConfigError(f"{path} is set for the whole family, and varied in it; leave one of the two")
        written = [_written(value) for value in values]
        if twice := [each for each in written if written.count(each) > 1]:
            raise ConfigError(f"the family has {path} = {twice[0]} twice; each value once")
    combined = [dict(zip(family, values, strict=True)) for values in itertools.product(*family.values())]
    if len(combined) < 2:
        raise ConfigError(f"a family has two settings or more, found {len(combined)}; as in tasks.size=4,8,16")
    return {",".join(f"{path}={_written(value)}" for path, value in each.items()): each for each in combined}


def _written(value: Any) -> str:
    return re.sub(r"[^A-Za-z0-9.+-]+", "_", str(value))


def compared_family(folders: Sequence[Path | str]) -> FamilyScores:
    """Returns the scores of the comparisons in folders, as `polopt compare` writes them, each of which is one setting
    of the environment. Its features are the numbers in which the recipes differ, and its name is the folder's.

    Raises:
        RunError: a folder holds no comparison, or two folders have one name.
        MetricDataError: the comparisons are not of the same methods.
    """
    names = [Path(folder).name for folder in folders]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise RunError(f"two folders are called {twice[0]!r}; the settings of a family need names of their own")
    found = [_comparison(Path(folder)) for folder in folders]
    recipes = [dict(by_path(read_yaml(each["about"]["recipe"], "recipe"))) for each in found]
    features = [
        path
        for path in sorted(set.intersection(*(set(recipe) for recipe in recipes)) if recipes else ())
        if not path.startswith(ASIDE)
        and all(isinstance(recipe[path], (int, float)) and not isinstance(recipe[path], bool) for recipe in recipes)
        and len({recipe[path] for recipe in recipes}) > 1
    ]
    rows = [
        (method["name"], name, score, seed, [float(recipe[path]) for path in features])
        for name, each, recipe in zip(names, found, recipes, strict=True)
        for method in each["methods"]
        for seed, score in zip(method["seeds"], method["final"], strict=True)
    ]
    method, setting, score, seed, described = ([row[i] for row in rows] for i in range(5))
    return FamilyScores(method, setting, score, seed, described)


def _comparison(folder: Path) -> dict[str, Any]:
    path = folder / "comparison.json"
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found["about"]["recipe"], str) or not found["methods"]:
            raise KeyError
    except (OSError, ValueError, KeyError, TypeError):
        raise RunError(f"{folder} holds no comparison: run polopt compare ... --run {folder}") from None
    return found
