"""Families of environments: every number by hand, scipy's tau, estimates that are exact in the limits, and bad rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from polopt.errors import RunError
from polopt.lab.measured import scores_over_a_family
from polopt.methods.mdp_family_eval import mdp_family_eval
from polopt.metrics import FamilyScores, MetricError, choose_settings, kendall_tau
from polopt.metrics.families import CHOICES, clusters
from polopt.training.families import compared_family
from polopt.training.measuring import measure


def small() -> FamilyScores:
    """a is ahead in the two settings of small mass, b in the one of large mass."""
    scores = {("a", "x"): [3.0, 5.0], ("b", "x"): [2.0, 2.0], ("a", "y"): [1.0], ("b", "y"): [0.0]}
    scores |= {("a", "z"): [0.0], ("b", "z"): [9.0]}
    rows = [(m, s, score, i) for (m, s), each in scores.items() for i, score in enumerate(each)]
    method, setting, score, seed = map(list, zip(*rows, strict=True))
    mass = [{"x": 1.0, "y": 1.0, "z": 2.0}[s] for s in setting]
    return FamilyScores(method, setting, score, seed, mass=mass, best=[10.0] * len(rows))


def test_every_number_by_hand() -> None:
    found = mdp_family_eval(resamples=50)(small())
    a, b = (0.4 + 0.1 + 0) / 4, (0.2 + 0 + 2 * 0.9) / 4
    assert found.values["a"] == pytest.approx(a)
    assert found.values["b"] == pytest.approx(b)
    assert found.values["b - a"] == pytest.approx(b - a)
    assert found.values["b over a, reversed"] == pytest.approx(0.5)
    assert found.values["another winner"] == pytest.approx(0.5)
    assert found.values["tau of one setting"] == pytest.approx(0.0)
    assert found.rows["tau"].tolist() == [-1.0, -1.0, 1.0]
    assert any("3 settings are few" in caution for caution in found.cautions)


def test_a_family_of_one_is_the_point_evaluation() -> None:
    data = FamilyScores(["a", "b"], ["x", "x"], [1.0, 2.0])
    found = mdp_family_eval(resamples=5, budget=1)(data)
    assert (found.values["another winner"], found.values["tau of one setting"]) == (0.0, 1.0)
    assert found.values["error, random"] == 0
    assert any("one seed" in caution for caution in found.cautions)


def test_tau_is_scipys() -> None:
    draw = np.random.default_rng(0)
    for _ in range(20):
        x, y = draw.integers(0, 5, (2, 9))
        assert kendall_tau(x, y) == pytest.approx(stats.kendalltau(x, y).statistic)
    assert np.isnan(kendall_tau([1, 1], [1, 2]))


def test_all_settings_are_exact_and_random_ones_unbiased() -> None:
    data = scores_over_a_family(0)
    features, weights, means = data.setting_features(), data.weights(), data.means()
    truth = means @ weights
    for how in ("medoids", "stratified", "subset"):
        places, share = choose_settings(features, weights, 12, how)  # type: ignore[arg-type]
        assert sorted(places.tolist()) == list(range(12))
        assert means[:, places] @ share == pytest.approx(truth)
    for how in ("random", "stratified"):
        found = []
        for seed in range(2000):
            places, share = choose_settings(features, weights, 3, how, seed)  # type: ignore[arg-type]
            assert share.sum() == pytest.approx(1)
            found.append(means[:, places] @ share)
        error = np.std(found, axis=0) / np.sqrt(len(found))
        assert (np.abs(np.mean(found, axis=0) - truth) < 4 * error + 1e-12).all()


def test_clusters_that_are_far_apart_are_found() -> None:
    draw = np.random.default_rng(3)
    centres = np.array([[0.0, 0.0], [50.0, 0.0], [0.0, 900.0]])
    which = draw.integers(0, 3, 40)
    found = clusters(centres[which] + draw.normal(size=(40, 2)), np.ones(40), 3, seed=1)
    assert len({(int(a), int(b)) for a, b in zip(which, found, strict=True)}) == 3
    same = clusters(np.zeros((4, 1)), np.ones(4), 2)
    assert same.max() <= 1


def test_only_seeds_vary_where_the_settings_are_all_of_the_family() -> None:
    found = mdp_family_eval(resamples=200, sampled=False)(small()).intervals
    assert (found["b"].low, found["b"].high) == (pytest.approx(0.5), pytest.approx(0.5))  # its seeds are equal
    assert found["a"].low == pytest.approx((0.3 + 0.1) / 4)
    assert found["a"].high == pytest.approx((0.5 + 0.1) / 4)
    wide = mdp_family_eval(resamples=200)(small()).intervals["b"]
    assert wide.high - wide.low > 0.3


GOOD = [{"method": m, "setting": s, "score": 1.0, "feature_length": 2} for m in "ab" for s in "xy"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"score": "high"}, "score must be a finite number, found 'high'"),
        ({"method": ""}, "column 'method' is missing"),
        ({"setting": "x"}, "has seed '0' twice"),
        ({"setting": "w"}, "has no score in setting"),
        ({"mass": 0}, "mass must be > 0"),
        ({"best": 0.0}, "reference and best of a setting must differ"),
        ({"feature_length": 3}, "has two masses, references, bests or features"),
        ({"feature_width": 3}, "the feature_... columns are not those of the first row"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    file = tmp_path / "family.jsonl"
    file.write_text("\n".join(map(json.dumps, [*GOOD[:-1], {**GOOD[-1], **changes}])))
    with pytest.raises(Exception, match=sentence):
        measure("mdp-family-eval", file)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(MetricError, match="budget = 4, and the family has 3 settings"):
        mdp_family_eval(budget=4, resamples=1)(small())
    with pytest.raises(MetricError, match="needs two methods or more, found 'a'"):
        mdp_family_eval()(FamilyScores(["a"], ["x"], [1.0]))
    with pytest.raises(ValueError, match=r"n must be from 1 to 2 settings, found 3"):
        choose_settings(np.zeros((2, 1)), [1, 1], 3, "random")
    with pytest.raises(ValueError, match=f"one of {', '.join(CHOICES)}"):
        choose_settings(np.zeros((2, 1)), [1, 1], 1, "best")  # type: ignore[arg-type]


def test_comparisons_are_a_family(tmp_path: Path) -> None:
    for name, length in (("short", 1), ("long", 5)):
        (tmp_path / name).mkdir()
        recipe = (
            f"seed: {length}\ntasks: {{kind: walk, length: {length}, width: 2}}\nstages: {{rl: {{steps: {length}}}}}\n"
        )
        methods = [{"name": m, "seeds": [0, 1], "final": [length, length + i]} for i, m in enumerate("ab")]
        (tmp_path / name / "comparison.json").write_text(json.dumps({"methods": methods, "about": {"recipe": recipe}}))
    data = compared_family([tmp_path / "short", tmp_path / "long"])
    assert data.settings == ["long", "short"]
    assert data.setting_features().tolist() == [[5.0], [1.0]]
    assert data.means().tolist() == [[5.0, 1.0], [5.5, 1.5]]
    with pytest.raises(RunError, match="holds no comparison: run polopt compare"):
        compared_family([tmp_path])
    with pytest.raises(RunError, match="two folders are called 'short'"):
        compared_family([tmp_path / "short", tmp_path / "x" / "short"])


def test_errors_have_intervals_over_trials() -> None:
    """Two settings of scores 0 and 1: one at random is always 0.5 off, a subset of both never, and of two drawn at
    random half the trials are 0.5 off, whose mean has the binomial's standard error."""
    data = FamilyScores(list("aabb"), list("xyxy"), [0.0, 1.0, 0.0, 1.0])
    one = mdp_family_eval(budget=1, trials=20, resamples=50)(data).intervals["error, random"]
    assert (one.estimate, one.low, one.high, one.n) == (0.5, 0.5, 0.5, 20)
    both = mdp_family_eval(budget=2, trials=400, resamples=2000)(data).intervals
    assert (both["error, subset"].low, both["error, subset"].high) == (0.0, 0.0)
    found = both["error, random"]
    share = 2 * found.estimate
    half = 1.96 * 0.5 * (share * (1 - share) / 400) ** 0.5
    assert found.high - found.estimate == pytest.approx(half, rel=0.1)
    assert found.estimate - found.low == pytest.approx(half, rel=0.1)
    assert found.low < 0.25 < found.high
