"""The recipes that come with polopt: YAML files beside this one."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Returns the recipes' names, as `polopt train NAME` takes them."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def path(name: str) -> Path:
    """The file of one of them."""
    return FOLDER / f"{name}.yaml"
