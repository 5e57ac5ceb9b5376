"""The registry of extras: what is checked of a batch, and that every name in use is registered."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import polopt
from polopt import Experience
from polopt.extras import EXTRAS
from polopt.fields import ExperienceError

ROOT = Path(polopt.__file__).parent
# Rooms whose parts serve more than one problem; the lab, the checks and claims have entries of their own.
ROOMS = ("sampling", "rewards", "credit", "objectives", "training", "policies", "bridges", "metrics", "guards")
# In objects that are called extras and belong to no batch: outputs of a policy.
OUTPUTS = {"candidate_logp", "mean_logp", "entropy_slope", "hidden", "velocity"}


def batch(**extras: object) -> Experience:
    return Experience(mask=torch.ones(3, 4, dtype=torch.bool), extras=extras)


def used(path: Path) -> Iterator[str]:
    """Names by which the code of a file reads or writes extras of a batch."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Subscript(
                value=ast.Attribute(attr="extras") | ast.Name(id="extras"), slice=ast.Constant(value=str(name))
            ):
                yield name
            case ast.Call(
                func=ast.Attribute(attr="get", value=ast.Attribute(attr="extras")),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield name
            case ast.keyword(arg="extras", value=ast.Dict(keys=keys)):
                yield from (key.value for key in keys if isinstance(key, ast.Constant))
            case ast.Constant(value=str(text)) if text.startswith("extras.") and text[7:].isidentifier():
                yield text.removeprefix("extras.")


@pytest.mark.parametrize("room", ROOMS)
def test_every_name_in_use_is_registered(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    assert files
    unknown = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in files
        for name in used(path)
        if name not in EXTRAS and name not in OUTPUTS and not name.startswith(("old_", "signal_"))
    }
    assert not unknown


def test_a_name_is_registered_once_and_in_order() -> None:
    assert list(EXTRAS) == sorted(EXTRAS)
    assert all(name == extra.name and extra.shape[0] == "B" for name, extra in EXTRAS.items())


def test_right_entries_are_accepted() -> None:
    made = batch(
        index=torch.arange(3),
        paid=torch.zeros(3, 4),
        answer=["a", "b", "c"],
        candidates=torch.zeros(3, 4, 2, dtype=torch.int32),
        action=torch.zeros(3, 4, 5),
        observation=torch.zeros(3, 5, 2),
        my_own=torch.zeros(3, 7),
    )
    assert made.extras.keys() >= {"index", "my_own"}
    assert batch(action=torch.zeros(3, 4, dtype=torch.int64)).extras["action"].shape == (3, 4)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("index", torch.zeros(3), r"must be integer of shape \[B\] = \[3\], found float32 \[3\]"),
        ("answer_reward", torch.zeros(3), r"must be floating point of shape \[B, T\] = \[3, 4\], found float32 \[3\]"),
        (
            "answer_reward",
            torch.zeros(3, 5),
            r"must be floating point of shape \[B, T\] = \[3, 4\], found float32 \[3, 5\]",
        ),
        ("explored", torch.zeros(3, dtype=torch.int64), r"must be bool of shape \[B\] = \[3\], found int64"),
        ("candidates", torch.zeros(3, 4, dtype=torch.int64), r"must be integer of shape \[B, T, C\] = \[3, 4, C\]"),
        ("action", torch.zeros(3), r"must be integer or floating point of shape \[B, T, ...\] = \[3, 4, ...\]"),
        ("answer", torch.zeros(3), r"must be a list of B = 3 entries, found float32 \[3\]"),
        ("index", torch.zeros(2, dtype=torch.int64), r"must have one entry per row, B = 3"),
    ],
)
def test_a_wrong_entry_is_refused_by_name(name: str, value: object, expected: str) -> None:
    with pytest.raises(ExperienceError, match=rf"extras\['{name}'\] {expected}"):
        batch(**{name: value})
