"""Diagnostics of value classes beside brute force and closed forms, and the door."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import optimize

from polopt.lab.measured import feature_samples
from polopt.methods.off_policy_realizability import off_policy_realizability
from polopt.metrics import FeatureTransitions, MetricDataError, bellman_incompleteness, concentrability
from polopt.training.measuring import measure


def process(seed: int, n: int = 8, d: int = 2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    return draw.normal(size=(n, d)), draw.dirichlet(np.ones(n), n), draw.dirichlet(np.ones(n))


def test_beta_and_the_inherent_error_are_the_largest_ratios_of_a_search() -> None:
    for seed in range(5):
        phi, moves, mu = process(seed)
        found = bellman_incompleteness(phi, moves @ phi, mu, 0.9, ridge=1e-12)
        root = np.sqrt(mu)[:, None]

        def ratios(angle: float, root: np.ndarray = root, phi: np.ndarray = phi, moves: np.ndarray = moves) -> Any:
            theta = np.array([np.cos(angle), np.sin(angle)])
            after = root[:, 0] * (0.9 * moves @ phi @ theta)
            best = np.linalg.lstsq(root * phi, after, rcond=None)[0]
            outside = np.linalg.norm(after - root * phi @ best)
            values = root * phi @ theta
            return outside / np.linalg.norm(values - after), outside / np.linalg.norm(values)

        for value, part in ((found.beta, 0), (found.inherent, 1)):
            grid = np.linspace(0, np.pi, 721)
            at = grid[np.argmax([ratios(x)[part] for x in grid])]
            best = optimize.minimize_scalar(
                lambda x, p=part, f=ratios: -f(x)[p], bounds=(at - 0.01, at + 0.01), method="bounded"
            )
            assert value == pytest.approx(-best.fun, rel=1e-6)


def test_a_table_is_complete_and_without_a_future_all_classes_are() -> None:
    _, moves, mu = process(0)
    table = bellman_incompleteness(np.eye(8), moves, mu, 0.9, ridge=1e-12)
    assert table.beta < 1e-9
    assert table.fqe_radius == pytest.approx(0.9)
    phi, moves, mu = process(1)
    assert bellman_incompleteness(phi, moves @ phi, mu, 0.0).beta == 0


def test_concentrability_of_a_table_is_the_largest_quotient_and_of_a_constant_one() -> None:
    mu, d = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])
    assert concentrability(np.eye(3), mu, d, ridge=1e-12) == pytest.approx(3)
    assert concentrability(np.ones((3, 1)), mu, d, ridge=1e-12) == pytest.approx(1)


def test_samples_of_a_pair_are_averaged() -> None:
    """Two samples of equal weight are their expectation; apart, their noise counts as incompleteness."""
    phi, _, _ = process(2, n=4)
    up, down = np.array([[0.3, -0.1]] * 4), np.array([[-0.5, 0.7]] * 4)
    both = FeatureTransitions(np.tile(phi, (2, 1)), np.concatenate([up, down]), pair=list("abcd") * 2)
    metric = off_policy_realizability(gamma=0.9, resamples=5)
    expected = metric(FeatureTransitions(phi, (up + down) / 2)).values["beta"]
    assert metric(both).values["beta"] == pytest.approx(expected)
    apart = FeatureTransitions(both.features, both.next_features)
    assert metric(apart).values["beta"] > expected + 0.01


def test_episodes_are_the_units_and_cautions_are_given() -> None:
    data = feature_samples(0)
    found = off_policy_realizability(gamma=0.9, resamples=20)(data)
    assert found.intervals["beta"].n == 9
    assert found.intervals["beta"].low <= found.values["beta"] <= found.intervals["beta"].high
    assert set(found.values) == set(found.intervals)
    diverging = FeatureTransitions([[1.0], [2.0]], [[2.0], [2.0]])
    cautions = " ".join(off_policy_realizability(gamma=0.95, resamples=5)(diverging).cautions)
    assert "fitted Q evaluation with these features diverges" in cautions
    assert "single samples" in cautions


def rows(**changes: Any) -> list[dict[str, Any]]:
    base = {"features": [1.0, 0.0], "next_features": [0.0, 1.0]}
    return [{**base, **(changes if i == 1 else {})} for i in range(3)]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"features": None}, "column 'features' is missing: a list of numbers"),
        ({"features": "[1, x]"}, "features must be a list of numbers"),
        ({"next_features": [1.0]}, "must have one length, found 2 and 1"),
        ({"features": [1.0], "next_features": [1.0]}, "features have another length than those of row"),
        ({"weight": 2.0}, "row 1: weight is empty; give it in every row or in none"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    file = tmp_path / "transitions.jsonl"
    file.write_text("\n".join(map(json.dumps, rows(**changes))))
    with pytest.raises(Exception, match=sentence):
        measure("off-policy-realizability", file)


def test_a_file_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "transitions.csv"
    file.write_text('features,next_features\n"[1]","[2]"\n"[2]","[2]"\n')
    found = measure("off-policy-realizability", file, gamma=0.5, resamples=5)
    assert found.values["FQE radius"] == pytest.approx(0.6, abs=1e-5)


def test_bad_data_and_settings() -> None:
    with pytest.raises(MetricDataError, match=r"phi and phi_next must be \[n, d\]"):
        bellman_incompleteness(np.ones(3), np.ones(3), np.ones(3), 0.9)
    with pytest.raises(MetricDataError, match="weights >= 0 with a sum > 0"):
        bellman_incompleteness(np.ones((2, 1)), np.ones((2, 1)), [0.0, 0.0], 0.9)
    with pytest.raises(MetricDataError, match="weight must be >= 0, and not all 0, found -1"):
        FeatureTransitions([[1.0], [2.0]], [[1.0], [2.0]], [-1.0, 2.0])
    with pytest.raises(MetricDataError, match="features must be \\[N, D\\]"):
        FeatureTransitions([1.0, 2.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="need gamma in"):
        off_policy_realizability(gamma=2.0)
