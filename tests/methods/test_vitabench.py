"""Reliability over trials by hand, and what is refused."""

from __future__ import annotations

import pytest

from polopt.methods.vitabench import vitabench
from polopt.metrics import MetricError
from polopt.metrics.policy_trials import TRIAL_ROWS, PolicyTrials
from polopt.training.measuring import read_data

FILE = """policy,task,success,score
a,x,true,1
a,x,false,0.5
a,y,true,1
a,y,true,1
b,x,false,0
b,x,false,
"""


def test_numbers_by_hand(tmp_path) -> None:
    (tmp_path / "trials.csv").write_text(FILE)
    data = read_data(TRIAL_ROWS, tmp_path / "trials.csv")
    found = vitabench()(data)
    assert found.values == pytest.approx(
        {
            "a, avg": 0.75,
            "a, pass@1": 0.75,
            "a, pass@2": 1.0,
            "a, pass^1": 0.75,
            "a, pass^2": 0.5,
            "a, rubric": 0.875,
            "b, avg": 0.0,
            "b, pass@1": 0.0,
            "b, pass@2": 0.0,
            "b, pass^1": 0.0,
            "b, pass^2": 0.0,
        }
    )
    assert found.cautions == ("policies were tried on different tasks, so that their means are not comparable",)
    assert found.rows["a"].tolist() == [0.5, 1.0]
    assert found.intervals["a, avg"].n == 2


def test_more_trials_than_a_task_has_are_refused() -> None:
    data = PolicyTrials(["a"] * 3, [1, 0, 1], ["x", "x", "y"])
    assert set(vitabench()(data).values) == {"a, avg", "a, pass@1", "a, pass^1"}
    with pytest.raises(MetricError, match="k = 2 needs as many trials of every task, and 'a' has 1 of 'y'"):
        vitabench(k=(2,))(data)
    with pytest.raises(ValueError, match="from 1 on"):
        vitabench(k=(0,))
    with pytest.raises(ValueError, match="level"):
        vitabench(level=1.0)
