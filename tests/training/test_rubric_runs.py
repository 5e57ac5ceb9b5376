"""A run whose reward is written by models behind a server: stopped and resumed, it pays nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from chat_server import judge_reply, served
from tiny_runs import Stop, StopAt, lines, outcome, recipe

from polopt.training.launch import resume, train


def test_a_run_through_a_server_is_stopped_and_resumed_to_the_same_bytes(tmp_path: Path) -> None:
    with served(judge_reply) as server:
        chat = {"part": "backends.Chat", "url": server.url, "model": "tiny", "cache": str(tmp_path / "replies")}
        method = {
            "name": "mpo-meta",
            "every": 2,
            "samples": 3,
            "items": [
                {"part": "rewards.Item", "name": "right", "most": 3},
                {"part": "rewards.Item", "name": "short", "most": 2},
            ],
            "grader": {"part": "rewards.HTTPGrader", "chat": chat},
            "meta": {"part": "rewards.HTTPMeta", "chat": chat},
        }
        stages = {
            "warmup": {"method": "sft", "steps": 4, "rows": 16, "optimiser": {"lr": 0.03}},
            "rl": {"method": method, "steps": 5, "rows": 8},
        }
        settings = recipe(stages=stages, checkpoint=2)
        train(settings, tmp_path / "through")
        asked = len(server.seen)
        assert asked > 8
        with pytest.raises(Stop):
            train(settings, tmp_path / "stopped", watchers=(StopAt(7),))
        resume(tmp_path / "stopped")
        assert len(server.seen) == asked  # nothing was paid twice
    through, stopped = outcome(tmp_path / "through"), outcome(tmp_path / "stopped")
    assert through == stopped
    assert len([record for record in lines(tmp_path / "through", "metrics") if record["stage"] == "rl"]) == 5
