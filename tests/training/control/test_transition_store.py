"""The store of transitions: the latest ones, drawn evenly, and the same ones after a resume."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from scipy import stats

from polopt.errors import RunError
from polopt.training.control.transition_store import TransitionStore

COLUMNS = {"number": ((), torch.int64), "observation": ((2,), torch.float32), "terminated": ((), torch.bool)}


def store(folder: Path, capacity: int = 10, spare: int = 6) -> TransitionStore:
    return TransitionStore(folder, COLUMNS, capacity, spare)


def rows(first: int, count: int) -> dict[str, torch.Tensor]:
    number = torch.arange(first, first + count)
    return {"number": number, "observation": number[:, None] + torch.tensor([0.25, 0.5]), "terminated": number % 3 == 0}


def drawn(found: TransitionStore, seed: int = 0, count: int = 200) -> torch.Tensor:
    return found.draw(count, torch.Generator().manual_seed(seed))["number"]


def test_the_latest_rows_are_drawn_evenly_and_whole(tmp_path: Path) -> None:
    found = store(tmp_path)
    for first in range(0, 40, 4):
        found.add(rows(first, 4))
    assert len(found) == 10
    got = found.draw(20_000, torch.Generator().manual_seed(0))
    assert set(got["number"].tolist()) == set(range(30, 40))
    assert torch.equal(got["observation"], rows(0, 40)["observation"][got["number"]])
    assert torch.equal(got["terminated"], got["number"] % 3 == 0)
    counts = got["number"].bincount()[30:]
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3


def test_after_a_resume_the_same_rows_are_drawn(tmp_path: Path) -> None:
    whole = store(tmp_path / "whole")
    whole.add(rows(0, 20))
    expected = drawn(whole)
    cut = store(tmp_path / "cut")
    cut.add(rows(0, 20))
    cut.add(rows(20, 6))  # written after the checkpoint, by a process that was killed
    again = store(tmp_path / "cut")
    again.go_back(20)
    assert torch.equal(drawn(again), expected)
    again.add(rows(20, 3))
    whole.add(rows(20, 3))
    assert torch.equal(drawn(again, 1), drawn(whole, 1))


def test_what_is_lost_is_said(tmp_path: Path) -> None:
    found = store(tmp_path)
    found.add(rows(0, 20))
    found.add(rows(20, 7))
    with pytest.raises(RunError, match=r"up to number 27, .* 10 before number 20, which have been overwritten"):
        store(tmp_path).go_back(20)
    store(tmp_path).go_back(21)
    with pytest.raises(RunError, match="before number 28, which are not there"):
        store(tmp_path).go_back(28)
    (tmp_path / "number.bin").unlink()
    other = store(tmp_path, capacity=11)  # another layout begins anew
    assert len(other) == 0
    with pytest.raises(RunError, match="which are not there"):
        other.go_back(5)
