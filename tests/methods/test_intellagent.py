"""Walks over a graph of rules, their validator, and the report: by hand, by enumeration, and the door."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polopt.methods.intellagent import intellagent
from polopt.metrics import MetricDataError, PolicyTestResults, wilson
from polopt.training.measuring import measure
from polopt.worlds import DatasetReader, PolicyGraph, PolicyTest, policy_test_rows, policy_violations
from polopt.worlds.policy_graph import PolicyGraphError

WEIGHT = np.array([[0.0, 3.0, 1.0], [3.0, 0.0, 0.0], [1.0, 0.0, 0.0]])


def test_walks_are_those_of_the_formula() -> None:
    """Frequencies of all paths, against the product of their probabilities, within 4.5 standard errors."""
    graph = PolicyGraph(("a", "b", "c"), np.array([1.0, 2.0, 3.0]), WEIGHT)
    truth = {"ab": 1 / 4, "ac": 1 / 12, "ba": 1 / 3, "c": 1 / 3}
    n = 4000
    found: dict[str, int] = {}
    for test in graph.tests(n, thresholds=(3.0,), seed=1):
        path = "".join(test.policies)
        found[path] = found.get(path, 0) + 1
        assert test.difficulty == sum({"a": 1, "b": 2, "c": 3}[x] for x in path)
    assert found.keys() == truth.keys()
    for path, p in truth.items():
        assert found[path] / n == pytest.approx(p, abs=4.5 * (p * (1 - p) / n) ** 0.5)


def test_a_walk_without_neighbours_ends() -> None:
    graph = PolicyGraph(("a", "b"), np.ones(2), np.zeros((2, 2)))
    assert {len(test.policies) for test in graph.tests(20)} == {1}
    whole = PolicyGraph(("a", "b"), np.ones(2), np.ones((2, 2)))
    assert {test.difficulty for test in whole.tests(20)} == {2.0}


def test_weights_of_conversations() -> None:
    graph = PolicyGraph.of_conversations([["a", "b"], ["b", "a", "a"], ["c"]], {"a": 1, "b": 2, "c": 3}, pseudo=0.5)
    assert graph.weight.tolist() == [[0, 2.5, 0.5], [2.5, 0, 0.5], [0.5, 0.5, 0]]
    with pytest.raises(PolicyGraphError, match="conversation 1: 'd' has no challenge score"):
        PolicyGraph.of_conversations([["d"]], {"a": 1})


def test_tests_are_a_data_set_with_a_validator(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text(
        "from polopt.worlds import policy_violations\n"
        "CHECKS = {'polite': lambda text: 'please' in text, 'brief': lambda text: len(text) < 20}\n"
        "def kept(completion, row):\n"
        "    return float(not policy_violations(row['policies'], completion, CHECKS))\n"
    )
    tests = [PolicyTest(("polite", "brief"), 3.0), PolicyTest(("brief",), 1.0)]
    rows = policy_test_rows(tests, lambda test: {"prompt": f"Obey {' and '.join(test.policies)}.", "answer": "-"})
    (tmp_path / "tests.jsonl").write_text("\n".join(map(json.dumps, rows)))
    tasks = DatasetReader(f"{tmp_path}/checks.py:kept").read(tmp_path / "tests.jsonl")
    values = []
    for i, answer in ((0, "yes please"), (0, "yes"), (1, "yes")):
        episode = tasks.episode(tasks[i])
        episode.reset()
        values.append(episode.step(answer).reward)
    assert values == [1.0, 0.0, 1.0]
    assert policy_violations(["a"], 1, {"a": lambda x: x > 1}) == ["a"]
    with pytest.raises(PolicyGraphError, match="there is no check of 'b'"):
        policy_violations(["b"], 1, {})
    with pytest.raises(PolicyGraphError, match="write must return a row with a prompt"):
        policy_test_rows(tests, lambda test: {})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"policies": ("a", "a", "b")}, "different names"),
        ({"challenge": [1, 2]}, r"3 policies need challenge \[3\]"),
        ({"challenge": [0, 1, 2]}, "challenge scores must be finite and above 0"),
        ({"weight": np.triu(WEIGHT)}, "weight must be symmetric"),
        ({"weight": -WEIGHT}, "finite and at least 0"),
    ],
)
def test_a_bad_graph_is_one_sentence(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PolicyGraphError, match=sentence):
        PolicyGraph(**{"policies": ("a", "b", "c"), "challenge": [1, 2, 3], "weight": WEIGHT, **change})


def test_the_report_by_hand() -> None:
    data = PolicyTestResults(list("1234"), ["ab", "ab", "a", "b"], ["", "b", "a", ""], [4, 4, 2, 2])
    found = intellagent(pairs=2)(data)
    assert found.values["success"] == 0.5
    assert (found.values["success at 2"], found.values["success at 4"]) == (0.5, 0.5)
    assert found.values["violations of a"] == pytest.approx(1 / 3)
    assert found.values["violations of b"] == pytest.approx(1 / 3)
    assert found.intervals["violations of a and b"] == wilson(1, 2)
    assert "violations of a and b" not in intellagent(pairs=3)(data).values


def test_runs_of_one_event_are_one_unit() -> None:
    many = PolicyTestResults(np.repeat(list("12"), 50), ["a"] * 100, ["a"] * 50 + [""] * 50, [1] * 100)
    interval = intellagent()(many).intervals["success"]
    assert (interval.n, interval.low, interval.high) == (2, 0.0, 1.0)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"policies": None}, "column 'policies' is missing or empty"),
        ({"violated": ["c"]}, "violated: 'c' is not among policies"),
        ({"difficulty": None}, "column 'difficulty' is empty"),
        ({"policies": "a"}, "policies must be a list, found 'a'"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    row = {"event": "1", "policies": ["a", "b"], "violated": ["b"], "difficulty": 3}
    file = tmp_path / "results.jsonl"
    file.write_text(json.dumps({**row, **change}))
    with pytest.raises(Exception, match=sentence):
        measure("intellagent", file)
    file.write_text(json.dumps(row))
    assert measure("intellagent", file).values["violations of b"] == 1.0


def test_a_broken_rule_must_have_been_tested() -> None:
    with pytest.raises(MetricDataError, match="'b' is violated and not among its policies"):
        PolicyTestResults(["1"], ["a"], ["b"], [1])
    with pytest.raises(ValueError, match="need pairs >= 1"):
        intellagent(pairs=0)
