"""Imports point down, no room imports its neighbour, and `import polopt` stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import polopt

ROOT = Path(polopt.__file__).parent
FLOORS = [
    {"errors", "names", "absent", "recipes", "threads", "heap"},
    {"support", "situation", "yaml_data", "setting_types", "part_names"},
    {"fields", "ops", "layers"},
    {"evaluation", "stacking"},
    {"experience"},
    {"part", "values", "tokens"},
    {"config", "schedules", "outline", "part_diff", "problems"},
    {"sampling", "rewards", "credit", "objectives", "metrics", "solvers", "teachers", "guards"},
    {"algorithm", "config"},
    {"method"},
    {"methods"},
    {"packages"},
    {"policies", "worlds"},
    {"lab", "plan"},
    {"checks"},
    {"claims"},
    {"catalogue"},
    {"index"},
    {"training"},
    {"bridges"},
    {"report", "display"},
    {"api"},
    {"cli"},
    {"__main__"},
]
FLOOR = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}
FLOOR[""] = FLOOR["catalogue"]  # `import polopt` brings all that polopt/__init__.py imports
LIBRARIES = {"torch", "numpy", "pydantic", "yaml", "scipy"}
HEAVY = sorted(LIBRARIES | {"transformers", "reasoning_gym", "plotly", "rich", "typer", "pandas"})


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path) -> list[tuple[str, bool]]:
    """Modules of polopt that a file imports, and whether at once (True) or only when a function runs."""
    tree = ast.parse(path.read_text())
    inside = {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "polopt":
            names = [f"polopt.{a.name}" for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [node.module or ""]
        else:
            continue
        found += [(name, id(node) not in inside) for name in names]
    return found


FILES = sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")


def violations(path: Path) -> list[str]:
    here = room_of(path)
    assert here in FLOOR, f"{path.name}: room {here!r} stands on no floor"
    wrong = []
    for name, at_once in imports(path):
        package, _, rest = name.partition(".")
        if package != "polopt":
            continue
        there = rest.partition(".")[0]
        assert there in FLOOR, f"{path}: imports {name!r}, which stands on no floor"
        above = FLOOR[there] > FLOOR[here] or (FLOOR[there] == FLOOR[here] and there != here)
        # The batch names the part that wanted a field, in its errors alone.
        excused = (here, there) == ("fields", "part") and not at_once
        if above and not excused:
            wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    return wrong


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path):
    assert violations(path) == []


def test_an_import_upwards_is_seen(tmp_path, monkeypatch):
    """The test can fail: a part that imports a loop, and a room that imports its neighbour."""
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "credit").mkdir()
    file = tmp_path / "credit" / "x.py"
    file.write_text("from polopt.training import language\nfrom polopt import objectives\nimport polopt.ops\n")
    assert violations(file) == ["credit/x.py imports polopt.training", "credit/x.py imports polopt.objectives"]


def test_import_polopt_is_light():
    """Nothing heavy comes with the bare import, whatever else is installed."""
    code = f"import sys, polopt; print([m for m in {HEAVY!r} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
