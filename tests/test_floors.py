"""Imports point down, no room imports its neighbour, and `import polopt` stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import polopt

ROOT = Path(polopt.__file__).parent
FLOORS = [
    {"errors", "names", "recipes", "threads", "heap", "sections", "sequences"},
    {"absent"},
    {"support", "situation", "yaml_data", "setting_types", "part_names", "extras", "outputs"},
    {"fields", "ops", "layers"},
    {"evaluation", "stacking"},
    {"experience"},
    {"part", "values", "tokens", "compiled_steps"},
    {"anchor", "config", "schedules", "outline", "part_diff", "problems", "backends"},
    {"features"},
    {"sampling", "rewards", "credit", "objectives", "metrics", "solvers", "teachers", "guards"},
    {"updates"},
    {"networks"},
    {"algorithm", "config"},
    {"network_evaluation"},
    {"capabilities", "stepping", "network_training"},
    {"method", "claim"},
    {"tags"},
    {"tagging"},
    {"methods"},
    {"packages"},
    {"policies", "worlds"},
    {"step_source"},
    {"lab", "plan"},
    {"checks"},
    {"claims"},
    {"catalogue"},
    {"index", "part_list"},
    {"training"},
    {"bridges"},
    {"evidence"},
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


def imports(path: Path) -> list[str]:
    """Modules of polopt that a file imports, at once or when a function runs."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "polopt":
            found += [f"polopt.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.append(node.module or "")
    return found


FILES = sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")


def violations(path: Path) -> list[str]:
    here = room_of(path)
    assert here in FLOOR, f"{path.name}: room {here!r} stands on no floor"
    wrong = []
    for name in imports(path):
        package, _, rest = name.partition(".")
        if package != "polopt":
            continue
        there = rest.partition(".")[0]
        assert there in FLOOR, f"{path}: imports {name!r}, which stands on no floor"
        above = FLOOR[there] > FLOOR[here] or (FLOOR[there] == FLOOR[here] and there != here)
        if above:
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


def module_of(path: Path) -> str:
    return ".".join(("polopt", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


def for_types(tree: ast.Module) -> set[int]:
    """The nodes that only a type checker reads."""
    blocks = [n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test)]
    return {id(node) for block in blocks for node in ast.walk(block)}


def arrows() -> dict[str, set[str]]:
    """Module -> the modules that it imports, when it is loaded or when a function runs."""
    modules = {module_of(path): path for path in FILES}
    found: dict[str, set[str]] = {}
    for name, path in modules.items():
        tree = ast.parse(path.read_text())
        skipped, named = for_types(tree), set[str]()
        for node in ast.walk(tree):
            if id(node) in skipped:
                continue
            if isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                named |= (inner & modules.keys()) or {str(node.module)}
        found[name] = (named & modules.keys()) - {name}
    return found


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """Modules that import each other in a circle; empty if there are none."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return path[path.index(name) :]
        if name in done:
            return []
        found = next((c for other in sorted(graph.get(name, ())) if (c := visit(other, [*path, name]))), [])
        done.add(name)
        return found

    return next((found for name in sorted(graph) if (found := visit(name, []))), [])


def test_no_modules_import_each_other_in_a_circle():
    """Neither between rooms nor inside one, and not in functions either."""
    assert circle(arrows()) == []
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]


def test_import_polopt_is_light():
    """Nothing heavy comes with the bare import, whatever else is installed."""
    code = f"import sys, polopt; print([m for m in {HEAVY!r} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
