"""polopt recipes."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from polopt import recipes as shipped
from polopt.cli import wording
from polopt.cli.command_group import UsageError
from polopt.names import nearest


def recipes(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[RECIPE]", help="Print this one's YAML.", autocompletion=wording.complete_recipe),
    ] = None,
) -> None:
    """List the recipes that come with polopt, or print one: polopt recipes laptop > mine.yaml"""
    if name is not None:
        if name not in shipped.names():
            raise UsageError(f"there is no recipe {name!r}{nearest(name, shipped.names())}")
        typer.echo(shipped.path(name).read_text(encoding="utf-8"), nl=False)
        return
    table = Table(box=None, pad_edge=False)
    for column in ("recipe", "stages", "tasks"):
        table.add_column(column)
    for row in rows():
        table.add_row(*row)
    wording.screen().print(table)


def rows() -> list[tuple[str, str, str]]:
    """Returns name, stages and tasks of each recipe, from its YAML."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml, if installed, is ten times as fast
    found = []
    for name in shipped.names():
        data = yaml.load(shipped.path(name).read_text(encoding="utf-8"), loader)
        stages = ", ".join(f"{k} ({_method(v)}, {v['steps']} steps)" for k, v in data["stages"].items())
        found.append((name, stages, _world(data)))
    return found


def _world(recipe: dict[str, Any]) -> str:
    """Returns the tasks of a recipe, its environment, or its points."""
    if "environment" in recipe:
        return str(recipe["environment"]["id"])
    if "points" in recipe:
        return str(recipe["points"]["name"])
    tasks, datasets = recipe["tasks"], recipe["tasks"].get("datasets") or {}
    return f"{tasks['kind']}: {', '.join(datasets)}" if datasets else str(tasks["kind"])


def _method(stage: dict[str, Any]) -> str:
    method = stage["method"]
    return method if isinstance(method, str) else method["name"]
