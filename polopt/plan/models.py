"""Public architectures by name, and any config.json in a folder."""

from __future__ import annotations

import functools
import json
from importlib import resources
from pathlib import Path
from typing import Any

from polopt.config import ConfigError
from polopt.names import nearest
from polopt.plan.shape import ModelShape, shape_of
from polopt.yaml_data import read_yaml


@functools.cache
def table() -> dict[str, dict[str, Any]]:
    """Name -> the config's fields, and `parameters` as published."""
    return read_yaml((resources.files("polopt.plan") / "models.yaml").read_text(encoding="utf-8"), "models.yaml")


def find(name: str) -> ModelShape:
    """A model's shape: of a folder with a config.json, of such a file, or of the table, by name. A prefix before a
    slash, as in Qwen/Qwen2.5-7B, and an ending -Instruct or -Base do not affect costs.

    Raises:
        ConfigError: none of these; the nearest name is given.
    """
    path = Path(name)
    if path.is_dir() or path.suffix == ".json":
        file = path / "config.json" if path.is_dir() else path
        try:
            return shape_of(json.loads(file.read_text(encoding="utf-8")), path.stem if path.is_dir() else str(path))
        except (OSError, json.JSONDecodeError) as error:
            raise ConfigError(f"model = {name}: {file} cannot be read: {error}") from None
    short = path.name.removesuffix("-Instruct").removesuffix("-Base")
    known = {key.casefold(): key for key in table()}
    if short.casefold() not in known:
        hint = nearest(short, table())
        raise ConfigError(f"model = {name!r} is neither a folder with a config.json nor in the table{hint}")
    key = known[short.casefold()]
    return shape_of(table()[key], key)
