"""Ranking, a split in time, closings, and the gate."""

from __future__ import annotations

import math

import numpy as np
import pytest

from polopt.metrics import auroc, chronological, release_gate, tic_rate


def test_auroc_against_all_pairs() -> None:
    draw = np.random.default_rng(0)
    score, liked = draw.integers(0, 5, 40).astype(float), draw.integers(0, 2, 40)
    pairs = [(a, b) for a, x in zip(score, liked, strict=True) if x for b, y in zip(score, liked, strict=True) if not y]
    wanted = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs) / len(pairs)
    assert auroc(score, liked) == pytest.approx(wanted, rel=1e-12)
    assert auroc([1, 2], [0, 1]) == 1.0
    assert auroc([1, 1], [0, 1]) == 0.5
    assert math.isnan(auroc([1, 2], [1, 1]))
    with pytest.raises(ValueError, match=r"must both be \[n\], found \[2\] and \[3\]"):
        auroc([1, 2], [1, 0, 1])


def test_the_later_rows_are_held_out() -> None:
    early, late = chronological([5, 1, 9, 3, 7, 2, 8, 4], 0.25)
    assert sorted(early) == [0, 1, 3, 4, 5, 7]
    assert sorted(late) == [2, 6]
    early, late = chronological([1, 2, 2, 2, 3], 0.5)
    assert sorted(late) == [4]
    for when, share in (([1, 1, 1], 0.5), ([1, 2], 0.0), ([], 0.5)):
        with pytest.raises(ValueError, match="chronological"):
            chronological(when, share)


def test_the_commonest_closing() -> None:
    answers = ["It is four. Sending love always", "Paris,  SENDING LOVE ALWAYS", "no idea at all", "", "yes"]
    assert tic_rate(answers) == (0.4, "sending love always")
    assert tic_rate(["a b", "c b"], words=1) == (1.0, "b")
    assert tic_rate(["", ""]) == (0.0, "")


def test_the_gate_says_why_it_is_shut() -> None:
    before = {"helpful": 0.5, "safe": 0.9, "tic rate": 0.05}
    assert release_gate(before, {"helpful": 0.495, "safe": 1.0, "tic rate": 0.1}, drops={"helpful": 0.02}).open
    shut = release_gate(before, {"helpful": 0.48, "safe": 0.95, "tic rate": 0.6}, drops={"helpful": 0.02, "safe": 0.0})
    assert not shut.open
    assert shut.reasons == (
        "helpful fell from 0.5 to 0.48, more than 2%",
        "60% of the answers end alike, 5% did before",
    )
    with pytest.raises(ValueError, match="'tic rate' must be measured before and after"):
        release_gate({"helpful": 1.0}, {"helpful": 1.0}, drops={"helpful": 0.1})
