"""A language policy learns from a verifier that errs, whose rates are estimated on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from tiny_runs import Stop, StopAt, outcome, recipe

from polopt.config import ConfigError
from polopt.training.launch import resume, train

CHAINS: dict[str, Any] = {"kind": "chains", "steps": [1, 1], "letters": 2, "train": 300, "heldout": 20}
NOISY: dict[str, Any] = {"kind": "noisy", "of": CHAINS, "missed": 0.4}
STAGES: dict[str, Any] = {
    "warmup": {"method": "sft", "steps": 60, "rows": 32, "optimiser": {"lr": 0.02}},
    "rl": {
        "method": {"name": "noisy-verifier", "correction": "backward", "judge": "signal_true", "share": 1.0},
        "steps": 6,
        "rows": 64,
        "group": 4,
    },
}


def test_the_estimate_is_resumed_bit_for_bit_and_near_the_planted_rate(tmp_path: Path) -> None:
    settings = recipe(tasks=NOISY, stages=STAGES, checkpoint=4)
    train(settings, tmp_path / "through")
    with pytest.raises(Stop):
        train(settings, tmp_path / "stopped", watchers=(StopAt(63),))
    resume(tmp_path / "stopped")
    assert outcome(tmp_path / "through") == outcome(tmp_path / "stopped")
    last = sorted((tmp_path / "through" / "checkpoints").iterdir())[-1]
    counts = next(v for k, v in load_file(last / "state.safetensors").items() if k.endswith("reward.rates.counts"))
    (rows, judged, overturned), (paid, _, _) = counts[0].tolist()
    assert judged == rows > 0
    assert 0.2 < overturned / (overturned + paid) < 0.6


def test_without_a_second_judge_it_is_refused_at_the_door(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"RejudgedRates reads extras\.signal_true, which the tasks do not report"):
        train(recipe(tasks=CHAINS, stages=STAGES), tmp_path / "run")
