"""Metrics from written feedback: each step by hand, coverage and redundancy, and the door."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from polopt.lab.measured import remarked
from polopt.methods.autolibra import autolibra, rubric_items
from polopt.metrics import InducedMetric, MetricDataError, MetricError, WrittenFeedback
from polopt.metrics.induced import SentenceGrounding, WordClustering, WordJudge, WordMatching
from polopt.training.measuring import measure

REFUND = InducedMetric("refund", ("calculated the refund",), ("guessed the refund",))
TONE = InducedMetric("tone", ("calm tone",), ("sharp tone",))


def test_grounding_splits_praise_from_blame() -> None:
    found = SentenceGrounding()("Nice tone, but it never looked up the refund. Great!", "", "run 1")
    assert [(aspect.text, aspect.good) for aspect in found] == [
        ("Nice tone", True),
        ("it never looked up the refund", False),
    ]


def test_clusters_are_of_the_word_that_both_sides_share() -> None:
    ground = SentenceGrounding()
    aspects = [
        *ground("Good that it calculated the refund. Bad that it guessed the refund.", "", "1"),
        *ground("Calm tone. It calculated the refund.", "", "2"),
    ]
    found = WordClustering()(aspects)
    assert [metric.name for metric in found] == ["refund"]
    assert found[0].bad == ("Bad that it guessed the refund",)
    assert {metric.name for metric in WordClustering(least=1)(aspects)} == {"refund", "calm"}


def test_the_judge_reads_the_clause_of_the_behaviour() -> None:
    judge = WordJudge()
    assert judge("calculated refund; sharp tone", REFUND) == 1
    assert judge("guessed refund; calculated tax", REFUND) == -1
    assert judge("sharp tone", REFUND) == 0
    assert WordMatching()(SentenceGrounding()("A calm tone", "", "1")[0], [REFUND, TONE]) == 1


def test_coverage_and_redundancy_by_hand() -> None:
    """Of two remarks one is matched; the other has the sign that the record contradicts. Of two ratings one is used."""
    data = WrittenFeedback(["1"], ["calculated refund; sharp tone"], ["Good that it calculated the refund. Calm tone."])
    assert autolibra().counts(data, [REFUND, TONE]).tolist() == [[1, 2, 1, 2]]
    assert autolibra().counts(data, []).tolist() == [[0, 2, 0, 0]]


def test_what_is_left_is_clustered_again() -> None:
    class OneAtATime(WordClustering):
        def forward(self, aspects: Any) -> Any:
            return super().forward(aspects)[:1]

    data = remarked(0)
    every, first = (autolibra(clustering=OneAtATime(), rounds=rounds).induce(data) for rounds in (20, 1))
    assert len(first) == 1
    assert {m.name for m in every} == {m.name for m in autolibra().induce(data)}


def test_metrics_are_items_of_a_rubric() -> None:
    items = rubric_items([REFUND], weight=2.0)
    assert (items[0].name, items[0].weight) == ("refund", 2.0)
    assert items[0].text == "refund (good: calculated the refund; bad: guessed the refund)"


@pytest.mark.parametrize("column", ["trajectory", "record", "feedback"])
def test_a_bad_file_is_one_sentence(tmp_path: Path, column: str) -> None:
    row = {"trajectory": "1", "record": "calm tone", "feedback": "Calm tone."}
    file = tmp_path / "feedback.jsonl"
    file.write_text(json.dumps({**row, column: " "}))
    with pytest.raises(Exception, match=f"column '{column}' is missing"):
        measure("autolibra", file)
    file.write_text(json.dumps(row))
    with pytest.raises(MetricError, match="needs 4 trajectories or more"):
        measure("autolibra", file)
    file.write_text("\n".join(json.dumps({**row, "trajectory": str(i)}) for i in range(6)))
    assert measure("autolibra", file).values["metrics"] == 1.0


def test_settings_and_columns_are_checked() -> None:
    with pytest.raises(ValueError, match="need rounds >= 1"):
        autolibra(rounds=0)
    with pytest.raises(ValueError, match="least must be 1 or more"):
        WordClustering(least=0)
    with pytest.raises(MetricDataError, match="record of row 0 is empty"):
        WrittenFeedback(["1"], [""], ["x"])
    with pytest.raises(MetricError, match="makes no metric of"):
        autolibra(clustering=WordClustering(least=99))(remarked(0))
