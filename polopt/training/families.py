"""Families of environments: the scores of several comparisons that differ in settings of the environment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polopt.errors import RunError
from polopt.metrics import FamilyScores
from polopt.yaml_data import by_path, read_yaml

# Settings of a recipe that do not change the environment.
ASIDE = ("seed", "threads", "stages.", "policy.")


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
