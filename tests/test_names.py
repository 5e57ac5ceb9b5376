"""One name, one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import polopt

ROOT = Path(polopt.__file__).parent


def classes(path: Path) -> list[str]:
    return [node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]


def test_no_public_class_name_stands_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        for name in classes(path):
            if not name.startswith("_"):
                places[name].append(str(path.relative_to(ROOT)))
    assert len(places) > 500
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_the_glossary_says_each_word_once() -> None:
    """Its entries are bold, and none is explained twice."""
    page = (ROOT.parent / "docs" / "glossary.md").read_text()
    words = [part.lower() for part in page.split("**")[1::2]]
    assert len(words) > 40
    assert len(words) == len(set(words))
