"""DPO on easy pairs and PPO on the prompts of hard ones, from one file of pairs, in one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from test_named_policies import batches_of
from tiny_runs import lines, recipe

from polopt.config import ConfigError
from polopt.rewards import LearnedJudge
from polopt.training.launch import train

ANSWERS = ("0", "22", "even", "it is 4", "6!")


def world(folder: Path) -> tuple[dict[str, Any], dict[str, float]]:
    """A file of pairs, and the gap of each prompt's by the untrained judge."""
    rows = [{"prompt": f"even {i} ", "chosen": ANSWERS[i % 5], "rejected": ANSWERS[(i + 1) % 5]} for i in range(40)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    judge, prompts = LearnedJudge(), [row["prompt"] for row in rows]
    one, other = (judge(prompts, [row[name] for row in rows]).scores for name in ("chosen", "rejected"))
    gaps = dict(zip(prompts, (one - other).abs().tolist(), strict=True))
    return {"kind": "pairs", "path": str(folder / "pairs.jsonl"), "heldout": 0.25}, gaps


def test_each_stage_has_its_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks, gaps = world(tmp_path)
    gamma = sum(sorted(gaps.values())[19:21]) / 2
    stage = {"steps": 3, "rows": 16, "optimiser": {"lr": 1e-3}}
    stages = {
        "easy": stage | {"method": {"name": "mpo-easyhard", "stage": 1, "gamma": gamma}},
        "hard": stage | {"method": {"name": "mpo-easyhard", "gamma": gamma}, "group": 2},
    }
    made = recipe(stages=stages, tasks=tasks, evaluation={"problems": 4}, checkpoint=100)
    batches = batches_of(made, tmp_path / "run", monkeypatch)
    assert len(batches) == 6
    records = lines(tmp_path / "run", "metrics")
    for record, batch in zip(records[:3], batches[:3], strict=True):
        assert record["rows"] == sum(gaps[task.prompt] > gamma for task in batch.extras["task"])
    sampled = {task.prompt for batch in batches[3:] for task in batch.extras["task"]}
    assert len(sampled) > 3
    assert all(gaps[prompt] <= gamma for prompt in sampled)
    assert all((batch.reward.ndim == 2) and bool(torch.isfinite(batch.reward).all()) for batch in batches[3:])


def test_the_outcome_of_pairs_is_still_no_reward(tmp_path: Path) -> None:
    tasks, _ = world(tmp_path)
    stages = {
        "rl": {"method": {"name": "mpo-easyhard", "reward": {"part": "rewards.OutcomeReward"}}, "steps": 1, "rows": 4}
    }
    with pytest.raises(ConfigError, match="nothing verifies them"):
        train(recipe(stages=stages, tasks=tasks), tmp_path / "run")
