"""Confidence and critique, and revision over rounds: by hand, against other computations, and the door."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polopt.lab.measured import answers_by_round, revised_samples
from polopt.methods.selfcorrect_clcs import selfcorrect_clcs
from polopt.methods.selfcorrect_gen_vs_mc import selfcorrect_gen_vs_mc
from polopt.metrics import MetricDataError, RevisedAnswers, RevisionRounds
from polopt.metrics.intervals import wilson
from polopt.metrics.resampling import resampled_means, share_interval
from polopt.training.measuring import measure
from polopt.worlds import DatasetReader, revision_dialogues


def test_confidence_and_critique_by_hand() -> None:
    """One question is right twice of three times and kept once; the other is right once of two times and kept."""
    question, first, second = ["a", "a", "a", "b", "b"], [1, 1, 0, 1, 0], [1, 0, 1, 1, 0]
    found = selfcorrect_clcs(resamples=50)(RevisedAnswers.of_samples(question, first, second)).values
    right = (2 / 3 + 1 / 2) / 2
    kept, fixed = (1 / 3 + 1 / 2) / 2, (1 / 3 + 0) / 2
    assert found["Acc1"] == pytest.approx(right)
    assert found["CL"] == pytest.approx(kept / right)
    assert found["CS"] == pytest.approx(fixed / (1 - right))
    assert found["Acc2"] == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert found["RSS"] == pytest.approx((right - right**2) / (2 * right * (1 - right)))
    assert (found["lower line"], found["upper line"]) == pytest.approx((right**2, 2 * right - right**2))


def test_a_rate_that_nothing_falls_under_is_left_out() -> None:
    found = selfcorrect_clcs()(RevisedAnswers.of_samples(["a", "b"], [1, 1], [1, 0]))
    assert "CS" not in found.values
    assert "RSS" not in found.values
    assert any("CS and RSS are undefined" in caution for caution in found.cautions)


def test_a_share_of_all_has_a_width() -> None:
    found = selfcorrect_clcs()(RevisedAnswers.of_samples(list("abcd"), [1, 1, 1, 0], [1, 1, 1, 0]))
    expected = wilson(3, 3)
    assert (found.intervals["CL"].low, found.intervals["CL"].high) == (expected.low, expected.high)


def test_intervals_cover_the_rate() -> None:
    """Shares of units with a random whole, against the binomial quantile of 10^-4."""
    covered = 0
    for seed in range(200):
        draw = np.random.default_rng(seed)
        whole = draw.integers(0, 4, 60)
        found = share_interval(draw.binomial(whole, 0.3), whole, resamples=200, seed=seed)
        assert found is not None
        covered += found.low <= 0.3 <= found.high
    assert covered >= 170


def test_resampled_means_do_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).normal(size=(50, 2))
    monkeypatch.setattr("polopt.metrics.resampling.BLOCK", 7 * 50)
    found = resampled_means(x, 2000, 1)
    assert found.shape == (2000, 2)
    assert found.mean(0) == pytest.approx(x.mean(0), abs=4 * x.std() / (50 * 2000) ** 0.5)
    assert found.std(0) == pytest.approx(x.std(0) / 50**0.5, rel=0.1)


def test_dialogues_are_a_data_set(tmp_path: Path) -> None:
    rows = [{"question": "3 + 4", "solution": "7", "wrong": ["8", "9"], "answer": 7}]
    made = revision_dialogues(rows, check="Sure?")
    (tmp_path / "two.jsonl").write_text("\n".join(map(json.dumps, made)))
    tasks = DatasetReader("numeric").read(tmp_path / "two.jsonl")
    assert [tasks[i].history[1]["content"] for i in range(3)] == ["7", "8", "9"]
    assert {tasks[i].prompt for i in range(3)} == {"Sure?"}
    assert {(tasks[i].solution, tasks[i].answer) for i in range(3)} == {("7", "7")}
    assert len(revision_dialogues(rows, critique=False, plain=True)) == 2
    assert len(revision_dialogues(rows, confidence=False)) == 2


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"solution": "7"}, "row 1: field 'question' must be text, found None"),
        ({"question": "a", "solution": "7", "wrong": ["7 "]}, "row 1: field 'wrong' holds the solution '7'"),
        ({"question": "a", "solution": "7", "wrong": "8"}, "row 1: field 'wrong' must be a list of texts"),
    ],
)
def test_bad_dialogues_are_one_sentence(row: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        revision_dialogues([row])
    with pytest.raises(ValueError, match="there are no wrong answers"):
        revision_dialogues([{"question": "a", "solution": "b"}], confidence=False)


def written(tmp_path: Path, *rows: dict[str, Any]) -> Path:
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


def test_choices_of_a_file_are_exact(tmp_path: Path) -> None:
    revised = [[0.9, 0.1], [0.25, 0.75]]
    file = written(tmp_path, {"question": "q", "first": [0.6, 0.4], "revised": revised, "answer": 0})
    found = measure("selfcorrect-clcs", file).values
    assert (found["Acc1"], found["CL"], found["CS"]) == pytest.approx((0.6, 0.9, 0.25))


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"first_correct": True}, "column 'revised_correct' is missing: true or false"),
        ({"first_correct": 2, "revised_correct": 1}, "first_correct must be true or false, found 2"),
        ({"first": [0.5, 0.6]}, "first: probabilities must be at least 0 and sum to 1"),
        ({"first": [0.5, 0.5], "revised": [[1, 0]], "answer": 0}, "revised must be 2 lists"),
        ({"first": [0.5, 0.5], "revised": [[1, 0], [0, 1]], "answer": 2}, "answer must be a place from 0 to 1"),
        ({"question": ""}, "column 'question' is missing: a name"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, row: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Exception, match=sentence):
        measure("selfcorrect-clcs", written(tmp_path, {"question": "q", **row}))


def rounds(**columns: Any) -> RevisionRounds:
    base = {
        "item": ["a"] * 3 + ["b"] * 3,
        "round": [0, 1, 2] * 2,
        "correct": [1, 1, 0, 0, 1, 1],
        "answer": list("xxyzxx"),
    }
    return RevisionRounds(**{**base, **columns})


def test_rounds_by_hand() -> None:
    found = selfcorrect_gen_vs_mc(resamples=20)(rounds()).values
    values = {name.removeprefix("answers, "): value for name, value in found.items()}
    assert [values[f"accuracy@{k}"] for k in range(3)] == [0.5, 1.0, 0.5]
    assert [values[f"ever correct@{k}"] for k in range(3)] == [0.5, 1.0, 1.0]
    assert (values["drift@1"], values["drift@2"], values["repair@1"]) == (0.0, 0.5, 1.0)
    assert "repair@2" not in values
    assert (values["stability@1"], values["stability@2"]) == (0.5, 0.5)
    assert (values["CL"], values["CS"]) == (pytest.approx(2 / 3), 1.0)
    assert values["fixed point"] == pytest.approx(1 / (1 / 3 + 1))
    assert (values["stopped accuracy"], values["stopped rounds"]) == (1.0, 1.5)


def test_one_round_is_confidence_and_critique() -> None:
    data = answers_by_round(0)
    two = data[np.flatnonzero((data.round < 2) & (data.mode == "free"))]
    one = selfcorrect_gen_vs_mc(resamples=20)(two).values
    # Rows are in the order of items and rounds.
    pairs = RevisedAnswers.of_samples(two.item[::2], two.correct[::2], two.correct[1::2])
    other = selfcorrect_clcs(resamples=20)(pairs).values
    assert (one["free, CL"], one["free, CS"]) == pytest.approx((other["CL"], other["CS"]))


def test_inertia_is_the_divergence_of_scipy() -> None:
    from scipy.stats import entropy

    p = [[0.7, 0.2, 0.1], [0.5, 0.3, 0.2], [0.4, 0.4, 0.2]]
    found = selfcorrect_gen_vs_mc(resamples=20)(rounds(probabilities=p * 2)).values
    assert found["answers, inertia@1"] == pytest.approx(entropy(p[1], p[0]))
    assert [found[f"answers, margin@{k}"] for k in range(3)] == pytest.approx([0.5, 0.2, 0.0])


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"round": [0, 1, 1] * 2}, "rounds must be 0, 1, 2, ... once each, found"),
        ({"round": [1, 2, 3] * 2}, "item 'a', mode 'answers', sample '0': rounds must be"),
        ({"correct": [2] * 6}, "correct must be True or False"),
        ({"answer": ["x"] * 5}, "every column must be"),
        ({"probabilities": [[1.0], [0.5, 0.5], [1.0]] * 2}, "different numbers of options"),
    ],
)
def test_bad_rounds_are_one_sentence(columns: dict[str, Any], sentence: str) -> None:
    with pytest.raises((MetricDataError, ValueError), match=sentence):
        rounds(**columns)


def test_rounds_of_a_file(tmp_path: Path) -> None:
    rows = [{"item": "q", "round": k, "correct": k == 1, "answer": f"{k > 0}"} for k in range(3)]
    found = measure("selfcorrect-gen-vs-mc", written(tmp_path, *rows), stop=1).values
    assert (found["answers, accuracy@1"], found["answers, stopped accuracy"]) == (1.0, 1.0)
    with pytest.raises(Exception, match=r"round must be 0, 1, 2, ..., found 0\.5"):
        measure("selfcorrect-gen-vs-mc", written(tmp_path, {**rows[0], "round": 0.5}))


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="need level in"):
        selfcorrect_clcs(level=1.0)
    with pytest.raises(ValueError, match="need stop >= 1"):
        selfcorrect_gen_vs_mc(stop=0)
    assert revised_samples(0).by_question()[1].shape[1] == 3
