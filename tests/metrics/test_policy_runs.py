"""Completion under policies by hand, and bad rows."""

from __future__ import annotations

import pytest

from polopt.methods.st_webagentbench import st_webagentbench
from polopt.metrics import MetricDataError, MetricError, PolicyRuns
from polopt.metrics.policy_runs import POLICY_RUN_ROWS
from polopt.training.measuring import read_data

FILE = """task,run,success,policy,dimension,violated,dormant,satisfied,total
a,0,true,p,scope,false,false,2,2
a,0,true,q,scope,true,false,2,2
a,1,true,p,scope,false,true,2,2
a,1,true,q,scope,false,false,2,2
b,0,false,p,scope,false,false,1,4
b,0,false,r,consent,false,true,1,4
b,1,true,r,consent,false,true,4,4
"""


def test_numbers_by_hand(tmp_path) -> None:
    (tmp_path / "runs.csv").write_text(FILE)
    data = read_data(POLICY_RUN_ROWS, tmp_path / "runs.csv")
    found = st_webagentbench(k=(1, 2))(data)
    expected = {
        "CR": (1 + 0.5) / 2, "CuP": (0.5 + 0.5) / 2, "pCR": (1 + 0.625) / 2, "pCuP": (0.5 + 0.625) / 2,
        "all-pass@1": 0.5, "all-pass@2": 0.0, "scope, risk": 1 / 5, "scope, active risk": 1 / 4, "scope, level": 2.0,
        "consent, risk": 0.0, "consent, level": 0.0,
    }  # fmt: skip
    assert found.values == pytest.approx(expected)
    assert found.cautions == ("consent: no policy was active, so that it has no active risk",)
    assert found.intervals["scope, risk"].n == 2
    with pytest.raises(MetricError, match="k = 3 needs as many runs of every task, and a has 2"):
        st_webagentbench(k=(3,))(data)


def test_a_task_without_policies_is_completion() -> None:
    data = PolicyRuns(["a", "b"], ["0", "0"], [True, False], ["", ""], ["", ""], [False] * 2, [False] * 2)
    values = st_webagentbench()(data).values
    assert values == {"CR": 0.5, "CuP": 0.5, "pCR": 0.5, "pCuP": 0.5}


def test_rows_at_the_door(tmp_path) -> None:
    (tmp_path / "runs.csv").write_text("task,success,policy\na,true,p\na,true,p\n")
    with pytest.raises(MetricDataError, match="policy 'p' stands there twice"):
        read_data(POLICY_RUN_ROWS, tmp_path / "runs.csv")
    (tmp_path / "runs.csv").write_text("task,success,policy\na,true,p\na,false,q\n")
    with pytest.raises(MetricDataError, match="task 'a', run '0': its rows have two outcomes"):
        read_data(POLICY_RUN_ROWS, tmp_path / "runs.csv")
    for row, sentence in (
        ({"success": True}, "'task' is missing"),
        ({"task": "a"}, "'success' is missing: true or false"),
        ({"task": "a", "success": 1, "violated": "no"}, "violated must be true or false, found 'no'"),
        ({"task": "a", "success": 1, "satisfied": 1}, "satisfied and total belong together"),
    ):
        with pytest.raises(MetricDataError, match=sentence):
            POLICY_RUN_ROWS.parse(row, None)
    with pytest.raises(MetricDataError, match="is dormant, and violated"):
        PolicyRuns(["a"], ["0"], [True], ["p"], ["d"], [True], [True])
    with pytest.raises(MetricDataError, match="satisfied must be from 0 to total"):
        PolicyRuns(["a"], ["0"], [True], ["p"], ["d"], [False], [False], [3], [2])
