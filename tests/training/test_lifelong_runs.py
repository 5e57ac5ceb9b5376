"""Metrics of lifelong learning of a run's own stages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import GUESS, lines, recipe

from polopt.errors import UserError
from polopt.metrics.lifelong import lifelong_run
from polopt.metrics.row_format import RunScores
from polopt.training.launch import train
from polopt.training.measuring import measure

SFT = {"method": "sft", "steps": 2, "rows": 4}
STAGES: dict[str, Any] = {
    "a": SFT,
    "b": {**SFT, "tasks": GUESS, "limit": 2},
    "again": {"method": "reinforce", "steps": 4, "rows": 8},
}
EVALUATION = {"problems": 8, "quick": 8, "every": 2}


def test_a_runs_stages_are_a_lifetime(tmp_path: Path) -> None:
    """The first task's world is that of the last stage: what it kept is the score before that, less the first one."""
    train(recipe(stages=STAGES, evaluation=EVALUATION), tmp_path / "run")
    log = lines(tmp_path / "run", "evaluations")
    scores = (0.5, 0.2, 0.3, 0.6, 0.9)  # of a run so short they are all about 0
    for each, value in zip(log, scores, strict=True):
        each["pass@1"]["estimate"] = value
    (tmp_path / "run" / "evaluations.jsonl").write_text("".join(json.dumps(each) + "\n" for each in log))
    found = measure("l2-lifelong", tmp_path / "run", normalise=False)
    first, other, before, _, after = scores
    assert found.values["PM, a"] == pytest.approx(before - first)
    assert found.values["MEP, a"] == pytest.approx((first + before + after) / 3)
    assert found.values["MEP, b"] == pytest.approx(other)
    assert found.values["MTP, a"] == pytest.approx((first + after) / 2)
    assert found.values["BT, b to a"] == pytest.approx((before - first) / (before + first))
    assert any("one lifetime has no interval" in caution for caution in found.cautions)
    with pytest.raises(UserError, match="a run's folder has no scores over a family of settings; give a file"):
        measure("mdp-family-eval", tmp_path / "run")
    with pytest.raises(UserError, match="no columns to name; leave out --column"):
        measure("l2-lifelong", tmp_path / "run", {"task": "world"})


def test_one_stage_is_refused(tmp_path: Path) -> None:
    train(recipe(stages={"a": SFT}), tmp_path / "run")
    with pytest.raises(UserError, match="the run has one stage, a; lifelong learning needs two or more"):
        measure("l2-lifelong", tmp_path / "run")


def score(stage: str, step: int, when: str, value: float, **more: Any) -> dict[str, Any]:
    return {"stage": stage, "step": step, "when": when, "score": value, **more}


def test_a_stage_without_scores_is_refused() -> None:
    with pytest.raises(UserError, match=r"stage 'a' of the run has no held-out score: set evaluation\.every"):
        lifelong_run(RunScores({"a": "a", "b": "b"}, [score("b", 2, "before", 0.0), score("b", 4, "after", 1.0)]))


def test_blocks_of_an_extended_run_with_other_problems() -> None:
    scores = [
        *(score("a", 1, "during", 0.1), score("a", 2, "during", 0.2)),
        *(score("b", 2, "before", 0.3), score("b", 3, "during", 0.4), score("b", 4, "after", 0.5)),
        *(score("b", 5, "during", 0.6), score("b", 6, "after", 0.7)),
        *(score("b", 2, "before", 0.8, other="sums"), score("b", 6, "after", 0.9, other="sums")),
    ]
    rows = [
        (r["type"], r["task"], r["block"], r["performance"])
        for r in lifelong_run(RunScores({"a": "a", "b": "b"}, scores))
    ]
    assert rows == [
        ("train", "a", 0, 0.1),
        ("train", "a", 0, 0.2),
        ("eval", "a", 1, 0.2),
        ("eval", "b", 2, 0.3),
        ("eval", "others.sums", 2, 0.8),
        ("train", "b", 3, 0.4),
        ("train", "b", 3, 0.5),
        ("eval", "b", 4, 0.5),
        ("train", "b", 5, 0.6),
        ("train", "b", 5, 0.7),
        ("eval", "b", 6, 0.7),
        ("eval", "others.sums", 6, 0.9),
    ]
