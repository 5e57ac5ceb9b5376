"""Learning curves beside stable-baselines3: our side in small, the counts of steps, and the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import learning_curves, table
from benchmarks.learning_curves import PPO, SAC, SETTINGS, counts, job, markdown, ours
from polopt import compiled_steps


@pytest.mark.parametrize("name", SETTINGS)
def test_a_run_is_whole_batches_and_evaluations(name: str) -> None:
    settings = SETTINGS[name]
    rows, batches, every = counts(settings)
    assert batches % every == 0
    assert 0.9 * settings.steps < rows * batches <= settings.steps
    assert batches // every >= 4
    if isinstance(settings, PPO):
        assert rows % settings.batch == 0


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("CartPole-v1", PPO(128, 64, episodes=2, copies=2, length=16, batch=16, epochs=2)),
        ("Pendulum-v1", SAC(16, 8, episodes=1, start=8, batch=4, length=4)),
    ],
)
def test_our_side_is_measured_at_the_same_steps(
    name: str, settings: PPO | SAC, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SETTINGS, name, settings)
    monkeypatch.setattr(compiled_steps, "compiled", lambda graph, inputs: graph)
    found = ours(name, 3)
    assert [steps for steps, _ in found["points"]] == [settings.every, settings.steps]
    assert found["rate"] > 0
    assert found["points"] == ours(name, 3)["points"]


def test_what_has_run_is_kept_and_told(tmp_path: Path) -> None:
    """A curve in the folder is read and not run again; a table of known curves has their means and differences."""
    (tmp_path / "curves").mkdir()
    curves: dict[str, list[Any]] = {"polopt": [], "stable-baselines3": []}
    for side, (low, high) in {"polopt": (10.0, 100.0), "stable-baselines3": (20.0, 60.0)}.items():
        for seed, shift in enumerate((-1.0, 0.0, 1.0)):
            run = {"points": [[9984, low + shift], [19968, high + shift]], "rate": 200.0 if side == "polopt" else 100.0}
            (tmp_path / "curves" / f"CartPole-v1-{side}-{seed}.json").write_text(json.dumps(run))
            curves[side].append(job("CartPole-v1", side, seed, tmp_path))
    about = table.about(learning_curves.ROOT, threads=1, module="learning_curves")
    page = markdown(
        {"about": about | {"load_after": [0.0]}, "peers": {"gymnasium": "1"}, "curves": {"CartPole-v1": curves}}
    )
    # The mean of three numbers one apart is known to 4.303 / sqrt(3); what differs by a constant, exactly.
    assert "|9,984|10.0 (7.5 to 12.5)|20.0 (17.5 to 22.5)|-10.0 (-10.0 to -10.0)|" in page
    assert "|19,968|100.0 (97.5 to 102.5)|60.0 (57.5 to 62.5)|40.0 (40.0 to 40.0)|" in page
    assert "Steps a second: 200 and 100, 2.0 times as many (2.0 to 2.0)." in page
