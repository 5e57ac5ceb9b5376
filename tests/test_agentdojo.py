"""Rules for a suite of AgentDojo, where it is installed: its users' calls pass, injected ones that change something
do not."""

from __future__ import annotations

import pytest

from benchmarks.agentdojo import RULES, VERSION, measure

load_suites = pytest.importorskip("agentdojo.task_suite.load_suites")


@pytest.mark.parametrize("name", sorted(RULES))
def test_ground_truth_under_rules(name: str) -> None:
    found = measure(load_suites.get_suites(VERSION)[name])
    assert found["utility_with"] == found["utility_without"] > 0
    assert found["user_calls_refused"] == []
    assert found["injected_effects"] > 0
    assert found["injected_effects_executed"] == 0
    assert found["injections_done_with"] == found["injections_done_by_no_call"]
