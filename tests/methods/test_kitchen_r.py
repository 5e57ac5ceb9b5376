"""Rates of a planner and a controller by hand, the attribution, correlated failures in closed form, and the door."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polopt.lab.measured import hierarchy
from polopt.methods.kitchen_r import kitchen_r
from polopt.metrics import HierarchyEpisodes, MetricDataError, MetricError, wilson
from polopt.training.measuring import measure

NAN = float("nan")


def by_hand() -> HierarchyEpisodes:
    return HierarchyEpisodes(
        mode=["planner"] * 4 + ["controller"] * 3 + ["joint"] * 5,
        plan_correct=[1, 1, 1, 0] + [NAN] * 3 + [1, 1, 0, 0, 1],
        success=[NAN] * 7 + [1, 0, 1, 0, 1],
        steps=[NAN] * 4 + [2, 3, 1] + [1, 2, 3, 2, 1],
        skills=[NAN] * 4 + [2, 2, 1] + [NAN] * 5,
    )


def test_every_number_by_hand() -> None:
    found = kitchen_r(resamples=50)(by_hand())
    values, c = found.values, 5 / 6
    assert values["plan"] == 3 / 4
    assert values["skill"] == pytest.approx(c)
    assert values["whole plan"] == pytest.approx(2 / 3)
    assert values["joint"] == pytest.approx(3 / 5)
    assert values["joint, right plan"] == pytest.approx(2 / 5)
    product = 3 / 4 * np.mean([c, c**2, c**3, c**2, c])
    assert values["product"] == pytest.approx(product)
    assert values["joint, right plan - product"] == pytest.approx(2 / 5 - product)
    together = 2 / 3 / np.mean([c**2, c**3, c])
    assert values["whole plan / skills"] == pytest.approx(together)
    assert values["joint / levels"] == pytest.approx(2 / 5 / (product * together))
    kinds = {name: values[name] for name in ("succeeded", "plan wrong", "control failed", "lucky")}
    assert kinds == {"succeeded": 2, "plan wrong": 1, "control failed": 1, "lucky": 1}
    assert found.intervals["plan"] == wilson(3, 4)
    assert [row[1] for row in found.tables[1].rows] == ["2", "1", "1", "1"]


def test_the_product_of_independent_levels_is_the_rate_and_correlated_ones_are_off_by_the_covariance() -> None:
    """10,000 episodes of 2 to 4 skills; in scenes of two kinds the rates are means of products."""
    alike = kitchen_r(resamples=20)(hierarchy(0, episodes=10_000, lucky=0.0))
    assert alike.values["joint, right plan"] == pytest.approx(0.8 * np.mean([0.9**k for k in (2, 3, 4)]), abs=0.015)
    assert abs(alike.values["joint, right plan - product"]) < 0.02
    q, c = np.array([0.95, 0.4]), np.array([0.98, 0.7])
    hard = kitchen_r(resamples=20)(hierarchy(1, episodes=10_000, plan=(0.95, 0.4), skill=(0.98, 0.7), lucky=0.0))
    lengths = np.array([2, 3, 4])
    chained = (c[:, None] ** lengths).mean(1)
    product = q.mean() * (c.mean() ** lengths).mean()
    assert hard.values["joint, right plan - product"] == pytest.approx((q * chained).mean() - product, abs=0.025)
    assert hard.values["whole plan / skills"] == pytest.approx(chained.mean() / (c.mean() ** lengths).mean(), abs=0.05)
    expected = (q * chained).mean() / (q.mean() * chained.mean())
    assert hard.values["joint / levels"] == pytest.approx(expected, abs=0.05)
    assert any("failures are correlated" in caution for caution in hard.cautions)
    assert not alike.cautions


def test_rows_of_one_episode_are_drawn_together_and_modes_keep_their_numbers() -> None:
    names = [f"{i}" for i in range(6)]
    data = HierarchyEpisodes(
        mode=["planner"] * 6 + ["controller"] * 6 + ["joint"] * 6,
        plan_correct=[1] * 6 + [NAN] * 6 + [1] * 6,
        success=[NAN] * 12 + [1] * 6,
        steps=[NAN] * 6 + [1] * 12,
        skills=[NAN] * 6 + [1] * 6 + [NAN] * 6,
        episode=names + names[:3] + ["a", "b", "c"] + names,
    )
    counts = data.resampled(200, 0)
    assert (counts[0] == 1).all()
    planner, controller, joint = counts[:, :6], counts[:, 6:12], counts[:, 12:]
    assert (planner == joint).all()
    assert (controller[:, :3] == planner[:, :3]).all()
    assert all((x.sum(1) == 6).all() for x in (planner, controller, joint))
    assert counts[1:].mean(0) == pytest.approx(np.ones(18), abs=0.3)
    assert counts[1:].std() > 0.5


def test_luck_is_cautioned_and_is_no_correlation() -> None:
    found = kitchen_r(resamples=200)(hierarchy(2, episodes=400, plan=(0.5,), skill=(0.9,), lucky=0.6))
    (caution,) = found.cautions
    assert "plans that are called wrong" in caution
    assert found.values["lucky"] > 80


def rows(**changes: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"mode": "planner", "plan_correct": True},
        {"mode": "controller", "steps": 3, "skills": 2},
        {"mode": "joint", "plan_correct": "yes", "success": 0, "steps": 3},
    ]
    for row in found:
        row |= {name: value for name, value in changes.items() if name in row}
    return found


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"mode": "both"}, "mode must be planner, controller, joint, found 'both'"),
        ({"plan_correct": ""}, "line 1: an episode of mode planner needs plan_correct"),
        ({"plan_correct": 0.5}, "plan_correct must be true or false, found 0.5"),
        ({"skills": 4}, "line 2: skills must be a whole number from 0 to steps = 3, found 4"),
        ({"skills": None}, "line 2: an episode of mode controller needs skills"),
        ({"steps": 0}, "steps must be a whole number >= 1, found 0"),
        ({"success": None}, "line 3: an episode of mode joint needs success"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    file = tmp_path / "episodes.jsonl"
    file.write_text("\n".join(map(json.dumps, rows(**changes))))
    with pytest.raises(Exception, match=sentence):
        measure("kitchen-r", file)


def test_a_file_is_measured_and_what_is_missing_is_named(tmp_path: Path) -> None:
    file = tmp_path / "episodes.jsonl"
    file.write_text("\n".join(map(json.dumps, rows())))
    found = measure("kitchen-r", file, resamples=20)
    assert (found.values["control failed"], found.values["skill"]) == (1, pytest.approx(2 / 3))
    named = [{**row, "episode": "x" if i else ""} for i, row in enumerate(rows())]
    file.write_text("\n".join(map(json.dumps, named)))
    with pytest.raises(MetricDataError, match="row 1: episode is empty; give it in every row or in none"):
        measure("kitchen-r", file)
    with pytest.raises(MetricError, match="no episodes of mode planner, controller"):
        kitchen_r()(by_hand()[np.arange(7, 12)])
    with pytest.raises(MetricDataError, match=r"must be \[N\]"):
        HierarchyEpisodes(["planner"], [1, 0])
    with pytest.raises(MetricDataError, match="an episode of mode planner needs plan_correct"):
        HierarchyEpisodes(["planner"])
    with pytest.raises(MetricDataError, match="skills must be a whole number from 0 to steps = 2"):
        HierarchyEpisodes(["controller"], steps=[2], skills=[3])
    for settings in ({"resamples": 1}, {"level": 1.0}):
        with pytest.raises(ValueError, match=f"{next(iter(settings))} must be"):
            kitchen_r(**settings)  # type: ignore[arg-type]
