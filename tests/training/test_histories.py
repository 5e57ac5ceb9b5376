"""From folders of trained policies to a predictor of success."""

from __future__ import annotations

from pathlib import Path

import torch
from tiny_runs import recipe

from polopt.sampling import InContext, fit
from polopt.training.histories import histories, history
from polopt.training.launch import train
from polopt.training.trained import evaluate_folder


def test_a_runs_policy_has_a_history(tmp_path: Path) -> None:
    stages = {"warmup": {"method": "sft", "steps": 25, "rows": 16, "optimiser": {"lr": 0.03}}}
    train(recipe(stages=stages, checkpoint=100), tmp_path / "run")
    accuracy = evaluate_folder(tmp_path / "run", problems=12, samples=3)
    found = history(accuracy)
    assert len(found.prompts) == 12
    for i, (prompt, score) in enumerate(zip(found.prompts, found.scores.tolist(), strict=True)):
        rows = accuracy.rows[3 * i : 3 * i + 3]
        assert {row.task.prompt for row in rows} == {prompt}
        assert score == sum(row.solved for row in rows) / 3
    assert 0 < found.scores.mean() < 1
    again = histories([tmp_path / "run"] * 2, problems=12, samples=3)
    assert all(torch.equal(h.scores, found.scores) for h in again)

    predictor = fit(InContext(width=4, buckets=64), again, steps=4, queries=4)
    rates = predictor(found.prompts, found.scores, ["even 3", "even 5"])
    assert ((rates > 0) & (rates < 1)).all()
