"""Combinations of data, reward and update that a survey's recipe checker would refuse, refused before training."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import Digits, digits
from tiny_runs import recipe as tiny

from polopt.errors import UserError
from polopt.training.launch import train
from polopt.worlds import Task, TaskSplit


class NoSolutions(Digits):
    """Digits without a demonstrated solution."""

    def __getitem__(self, index: int) -> Task:
        return dataclasses.replace(super().__getitem__(index), solution=None)


def bare(size: int, seed: int) -> TaskSplit:
    return dataclasses.replace(digits(size, seed), train=NoSolutions(size, seed))


BARE = {"kind": f"{Path(__file__).resolve()}:bare", "size": 100}
PAIRS = {"kind": "pairs", "path": "pairs.jsonl"}
RL = {"steps": 1, "rows": 8, "group": 4}
ENVIRONMENT = {"reward": {"part": "rewards.EnvironmentReward"}}

# What is wrong -> changes of the recipe, and what the sentence names.
COMBINATIONS: dict[str, tuple[dict[str, Any], str]] = {
    "a loss of pairs without pairs": (
        {"stages": {"rl": {"method": "dpo", "steps": 1, "rows": 8}}},
        "sampling.PreferencePairs compares preferred with rejected answers, and the tasks come without",
    ),
    "a loss of labels without labels": (
        {"stages": {"rl": {"method": "kto", "steps": 1, "rows": 8}}},
        "sampling.RatedAnswers learns from answers with labels or scores, and the tasks come without",
    ),
    "imitation without demonstrations": (
        {"tasks": BARE, "stages": {"rl": {"method": "sft", "steps": 1, "rows": 8}}},
        "sampling.Demonstrations imitates solutions, and the tasks come without",
    ),
    "mixed-in demonstrations that are not there": (
        {"tasks": BARE, "stages": {"rl": {"method": "chord", **RL}}},
        "sampling.WithDemonstrations imitates solutions, and the tasks come without",
    ),
    "an environment's reward without an environment": (
        {"tasks": PAIRS, "stages": {"rl": {"method": "grpo", **RL, "but": ENVIRONMENT}}},
        "sampling.Rollouts samples answers, and nothing verifies them",
    ),
    "rollouts where nothing judges them": (
        {"tasks": PAIRS, "stages": {"rl": {"method": "grpo", **RL}}},
        "sampling.Rollouts samples answers, and nothing verifies them",
    ),
    "a group of one": (
        {"stages": {"rl": {"method": "grpo", **RL, "group": 1}}},
        "its groups hold one row each, which there is nothing to compare with",
    ),
    "a teacher that is not there": (
        {"stages": {"rl": {"method": "aligndistil", **RL}}},
        "teachers.ContrastTeacher reads extras.dpo_logp, and the stage names no policy dpo",
    ),
    "a diffusion loss on text": (
        {"stages": {"rl": {"method": "diffusion-dpo", "steps": 1, "rows": 8}}},
        "objectives.DenoisingReward needs extras.noise_level, extras.point, which language training cannot provide",
    ),
}


@pytest.mark.parametrize(("change", "name"), COMBINATIONS.values(), ids=COMBINATIONS)
def test_an_inconsistent_recipe_leaves_no_folder(
    change: dict[str, Any], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path / "data")
    rows = [{"prompt": f"even {i}", "chosen": "2", "rejected": "3"} for i in range(40)]
    (tmp_path / "data" / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(UserError) as caught:
        train(tiny(**change), tmp_path / "a" / "run")
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]
