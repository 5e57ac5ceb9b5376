"""The page of a run whose world tells the truth beside the reward."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from polopt.report import write_report
from polopt.report.run import read_run
from polopt.report.summary import notices, parting


def run_of(folder: Path, fall: float, steps: int = 120) -> Path:
    rng = np.random.default_rng(0)
    records = []
    for step in range(steps):
        paid = 0.2 + 0.005 * step
        right = paid - 0.05 - fall * max(0, step - 50)
        noisy = {"outcome/mean": paid + 0.01 * rng.normal(), "signal/true": right + 0.01 * rng.normal()}
        wrong = {"verifier/false_positive": 0.1, "verifier/false_negative": 0.05}
        records.append({"step": step, "stage": "rl", **noisy, **wrong})
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, records)) + "\n")
    return folder


def test_a_reward_that_is_gamed_is_told(tmp_path: Path) -> None:
    run = read_run(run_of(tmp_path, fall=0.01))
    found = parting(run)
    assert found is not None
    assert found.hacked
    assert found.step.low <= 50 <= found.step.high
    told = [n for n in notices(run, None) if "no longer follows" in n]
    assert len(told) == 1
    assert "falls while it rises" in told[0]
    assert "Does the reward mean what it should?" in write_report(tmp_path).read_text()


def test_a_truth_that_falls_behind_is_told_as_that(tmp_path: Path) -> None:
    told = [n for n in notices(read_run(run_of(tmp_path, fall=0.003)), None) if "no longer follows" in n]
    assert len(told) == 1
    assert "falls behind" in told[0]


@pytest.mark.parametrize(("fall", "steps"), [(0.0, 120), (0.05, 7)])
def test_nothing_is_told_where_there_is_nothing(tmp_path: Path, fall: float, steps: int) -> None:
    assert not [n for n in notices(read_run(run_of(tmp_path, fall, steps)), None) if "no longer follows" in n]
