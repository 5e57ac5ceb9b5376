"""Concordance against Mann and Whitney's U, enumeration, and its interval against simulation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from polopt.metrics import concordance


@pytest.mark.parametrize("seed", range(4))
def test_two_labels_are_the_rank_sum(seed: int) -> None:
    draw = np.random.default_rng(seed)
    labels = draw.random(30) < 0.4
    values = np.round(draw.normal(size=30) + labels, 1)  # ties
    found = concordance(values, labels)
    u = mannwhitneyu(values[labels], values[~labels]).statistic
    assert found.overall.estimate == pytest.approx(u / labels.sum() / (~labels).sum(), abs=1e-12)
    assert found.placements[labels].mean() == pytest.approx(found.overall.estimate)
    assert found.placements[~labels].mean() == pytest.approx(found.overall.estimate)


def test_more_labels_by_enumeration() -> None:
    draw = np.random.default_rng(0)
    labels, values = draw.integers(0, 4, 25), draw.integers(0, 6, 25)
    right = pairs = 0.0
    for i, j in itertools.combinations(range(25), 2):
        if labels[i] != labels[j]:
            pairs += 1
            agreement = (labels[i] - labels[j]) * (values[i] - values[j])
            right += 0.5 if agreement == 0 else float(agreement > 0)
    assert concordance(values, labels).overall.estimate == pytest.approx(right / pairs, abs=1e-12)


def test_the_interval_covers() -> None:
    """Scores of the two classes are normal, one standard deviation apart: the area is Phi(1 / sqrt 2) = 0.7602."""
    draw, covered = np.random.default_rng(0), 0
    for _ in range(500):
        labels = np.arange(60) < 25
        found = concordance(draw.normal(size=60) + labels, labels).overall
        covered += found.low <= 0.76025 <= found.high
    assert 0.92 <= covered / 500 <= 0.98


def test_a_perfect_order_is_not_certain() -> None:
    found = concordance([1, 2, 3, 4, 5], [0, 0, 1, 1, 1]).overall
    assert (found.estimate, found.high) == (1.0, 1.0)
    assert found.low < 0.5


@pytest.mark.parametrize(
    ("values", "labels", "message"),
    [
        ([1.0, 2.0], [1, 1], "labels must differ, found 2 rows of label 1"),
        ([1.0], [1, 0], "must be finite"),
        ([1.0, np.nan], [1, 0], "must be finite"),
    ],
)
def test_what_has_no_order_is_refused(values: list[float], labels: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        concordance(values, labels)
