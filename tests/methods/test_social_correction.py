"""Replies under a limit on harm: by hand, against enumeration, and the door."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polopt.lab.measured import replied
from polopt.methods.social_correction import constrained, doubly_robust, social_correction
from polopt.metrics import LoggedReplies, MetricDataError, MetricError
from polopt.training.measuring import measure


def test_the_estimate_is_the_mean_over_all_logs() -> None:
    """The doubly robust means over every log of two rows, by their probabilities, are the true ones for any model."""
    p, truth, model = np.array([0.3, 0.7]), np.array([0.2, 0.9]), np.array([[0.5, 0.1]])
    cases = [(a, y, p[a] * (truth[a] if y else 1 - truth[a])) for a in (0, 1) for y in (0.0, 1.0)]
    mean = np.zeros((1, 2))
    for a, y, one in cases:
        for b, z, two in cases:
            found, _ = doubly_robust(np.zeros(2, int), np.array([a, b]), np.array([y, z]), p[[a, b]], model)
            mean += one * two * found
    assert mean[0] == pytest.approx(truth, abs=1e-12)


def test_the_program_is_that_of_a_grid() -> None:
    gain, harm = np.array([[0.1, 0.5, 0.9], [0.0, 0.4, 0.3]]), np.array([[0.0, 0.1, 0.4], [0.0, 0.2, 0.05]])
    share, allowed = np.array([0.25, 0.75]), np.array([[True, True, True], [True, True, False]])
    policy, feasible = constrained(gain, harm, share, allowed, 0.08)
    assert feasible
    assert policy.sum(1) == pytest.approx([1, 1])
    assert policy[1, 2] == pytest.approx(0, abs=1e-9)
    corners = np.linspace(0, 1, 41)
    best = -np.inf
    for a in corners:
        for b in corners[corners <= 1 - a + 1e-9]:
            for c in corners:
                pi = np.array([[1 - a - b, a, b], [1 - c, c, 0]])
                if (share[:, None] * pi * harm).sum() <= 0.08 + 1e-12:
                    best = max(best, float((share[:, None] * pi * gain).sum()))
    found = float((share[:, None] * policy * gain).sum())
    assert best - 1e-9 <= found <= best + 0.02


def test_an_impossible_limit_gives_the_least_harm() -> None:
    harm = np.array([[0.3, 0.2]])
    policy, feasible = constrained(np.array([[1.0, 0.0]]), harm, np.ones(1), np.ones((1, 2), bool), 0.1)
    assert not feasible
    assert policy[0] == pytest.approx([0, 1])
    found = social_correction(backfire=0.0)(replied(0))
    assert any("no policy keeps backfire" in caution for caution in found.cautions)


def test_rates_of_the_log_and_replies_that_were_never_given() -> None:
    data = LoggedReplies(
        ["x"] * 4 + ["y"] * 4, list("aabb") + ["a"] * 4, ["corrective", "neutral", "backfire", "neutral"] * 2, [0.5] * 8
    )
    metric = social_correction(backfire=1.0)
    found = metric(data).values
    assert (found["logged corrective"], found["logged neutral"], found["logged backfire"]) == (0.25, 0.5, 0.25)
    assert found["logged net"] == 0
    assert metric.learn(data).table()["y"] == {"a": 1.0}


def test_the_policy_does_not_depend_on_the_order() -> None:
    data = replied(1)
    one, other = (social_correction().learn(x).probability for x in (data, data[np.arange(len(data))[::-1]]))
    assert one == pytest.approx(other)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"outcome": "angry"}, "outcome must be one of corrective, neutral, backfire, found 'angry'"),
        ({"behaviour_probability": 0}, r"behaviour_probability must be in \(0, 1\], found 0"),
        ({"reply": ""}, "column 'reply' is missing: a name"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    row = {"context": "x", "reply": "a", "outcome": "neutral", "behaviour_probability": 0.5}
    file = tmp_path / "replies.jsonl"
    file.write_text(json.dumps({**row, **change}))
    with pytest.raises(Exception, match=sentence):
        measure("social-correction", file)
    file.write_text(json.dumps(row))
    with pytest.raises(MetricError, match="needs 4 rows or more"):
        measure("social-correction", file)
    file.write_text("\n".join([json.dumps(row)] * 8))
    assert measure("social-correction", file).values["learned backfire"] == pytest.approx(0, abs=0.2)


def test_settings_and_columns_are_checked() -> None:
    with pytest.raises(ValueError, match="need backfire in"):
        social_correction(backfire=2.0)
    with pytest.raises(ValueError, match="shrink > 0"):
        social_correction(shrink=0.0)
    with pytest.raises(MetricDataError, match="outcome must be one of"):
        LoggedReplies(["x"], ["a"], ["angry"], [0.5])
    with pytest.raises(MetricDataError, match="probability must be in"):
        LoggedReplies(["x"], ["a"], ["neutral"], [0.0])
