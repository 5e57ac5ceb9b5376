"""Methods that remember something between batches: a run that is stopped and resumed ends with the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_runs import Stop, StopAt, outcome, recipe

import polopt as po
from polopt.training.launch import resume, train
from polopt.training.provided import LANGUAGE

REMEMBERING = [slug for slug in po.slugs("algorithm") if po.method(slug).state_dict()]

# Of tasks without tools an answer's tokens stand for its calls.
CHANGES = {
    "craft-gui": {"reward.terms": [{"part": "rewards.OutcomeReward"}] * 2, "sampling.choice.batches": 1},
    "otc": {"reward.efficiency.calls": {"part": "features.DecisionCount"}},
}
# Tasks of two kinds.
WORLDS: dict[str, dict[str, Any]] = {
    "craft-gui": {
        "tasks": {"kind": "chains", "steps": [1, 2], "letters": 2, "train": 500, "heldout": 20},
        "limit": 4,
    },
}


def trained_here(slug: str) -> bool:
    return not LANGUAGE.lacking(po.method(slug))


@pytest.mark.parametrize("slug", REMEMBERING)
def test_resuming_is_an_equality(slug: str, tmp_path: Path) -> None:
    if not trained_here(slug):
        pytest.skip("not for language policies")
    stages: dict[str, dict[str, Any]] = {
        "warmup": {"method": "sft", "steps": 6, "rows": 16, "optimiser": {"lr": 0.03}},
        "rl": {"method": slug, "steps": 4, "rows": 16, "group": 4, "minibatches": 2, "micro_rows": 5},
    }
    stages["rl"]["but"] = CHANGES.get(slug, {})
    settings = recipe(stages=stages, checkpoint=2, **WORLDS.get(slug, {}))
    train(settings, tmp_path / "through")
    # Step 6 is the stage's first: 8 is the last before a checkpoint at 10, so that one batch is played again.
    with pytest.raises(Stop):
        train(settings, tmp_path / "stopped", watchers=(StopAt(8),))
    resume(tmp_path / "stopped")
    through, stopped = outcome(tmp_path / "through"), outcome(tmp_path / "stopped")
    assert through["policy"] == stopped["policy"]
    assert through == stopped
