"""Files and functions are short enough to be read at once."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(path for folder in ("polopt", "tests") for path in (ROOT / folder).rglob("*.py"))
LONGEST_FILE, LONGEST_FUNCTION = 400, 60
# Files that are still longer. Each leaves the list when it no longer needs to be on it.
EXCUSED = {
    "polopt/lab/source.py",
}


def too_long(path: Path) -> list[str]:
    """What is too long in a file: the file itself, or functions of it, from `def` to their last lines."""
    text = path.read_text()
    lines = len(text.splitlines())
    found = [f"{path.name} has {lines} lines"] if lines > LONGEST_FILE else []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno is not None:
            lines = node.end_lineno - node.lineno + 1
            if lines > LONGEST_FUNCTION:
                found.append(f"{path.name}: {node.name} has {lines} lines")
    return found


def test_files_and_functions_are_short() -> None:
    assert len(FILES) > 600
    found = {str(path.relative_to(ROOT)): problems for path in FILES if (problems := too_long(path))}
    assert {name: problems for name, problems in found.items() if name not in EXCUSED} == {}


@pytest.mark.parametrize("name", sorted(EXCUSED))
def test_no_excuse_outlives_its_need(name: str) -> None:
    assert too_long(ROOT / name), f"{name} is short enough: take it off the list of excused files"


# A sentence of thirteen settings, most of them optional in the paper.
LONG_SENTENCES = {"secrets_rlhf_ppo_max"}


def long_sentence(text: str) -> bool:
    """Whether a method's file has over 60 lines and no part of its own."""
    has_parts = any(isinstance(node, ast.ClassDef) for node in ast.parse(text).body)
    return len(text.splitlines()) > LONGEST_FUNCTION and not has_parts


def test_methods_are_sentences() -> None:
    files = sorted((ROOT / "polopt" / "methods").glob("*.py"))
    assert len(files) > 80
    assert {path.stem for path in files if long_sentence(path.read_text())} == LONG_SENTENCES
    assert not long_sentence("x = 1\n" * 60)
    assert long_sentence("x = 1\n" * 61)
    assert not long_sentence("x = 1\n" * 61 + "class Own:\n    pass\n")


def test_what_is_too_long_is_seen(tmp_path: Path) -> None:
    """The limits themselves are allowed, one line more is not; a nested function and a method count by themselves."""
    file = tmp_path / "x.py"
    body = "    pass\n"
    file.write_text("def f():\n" + body * 59 + "\n" * 340)
    assert too_long(file) == []
    file.write_text("async def f():\n" + body * 60 + "\n" * 340)
    assert too_long(file) == ["x.py has 401 lines", "x.py: f has 61 lines"]
    file.write_text("class C:\n    def f(self):\n" + "        pass\n" * 60)
    assert too_long(file) == ["x.py: f has 61 lines"]


def test_no_two_test_files_have_one_name() -> None:
    """Their folders are no packages, so that the second of a name would stop the collection of all."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py")
    assert [name for name, count in names.items() if count > 1 and name != "__init__.py"] == []
