"""A language policy learns to call tools, behind a guard that refuses one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_runs import recipe

from polopt.training.launch import train

WORLD = """
from polopt.worlds import tool_environment


class Doors:
    def __init__(self, task):
        self.task, self.opened = task, False

    def tools(self):
        return {"a": self.open, "b": self.open}

    def open(self):
        self.opened = True
        return "ok"

    def score(self, answer):
        return float(self.opened)

    def demonstrate(self):
        return "." if self.opened else '{"name":"%s"}' % self.task.row["door"]


def doors(*, seed):
    tasks = [{"prompt": "ab"[i % 2], "id": str(i), "door": "ab"[i % 2]} for i in range(12)]
    return tool_environment(Doors, train=tasks[:8], heldout=tasks[8:], turns=2)
"""
STAGES: dict[str, Any] = {
    "warmup": {"method": "sft", "steps": 50, "rows": 16, "optimiser": {"lr": 0.02}},
    "rl": {"method": "grpo", "steps": 2, "rows": 32, "group": 4, "limit": 20},
}


def test_refused_calls_are_logged_with_every_step_and_held_out_tasks_are_guarded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("doors.py").write_text(WORLD)
    tasks = {"kind": "guarded", "of": {"kind": "doors.py:doors"}, "rules": [{"tool": "a"}]}
    run = train(recipe(tasks=tasks, stages=STAGES), tmp_path / "run")
    steps = [m for m in run.read("metrics") if m["stage"] == "rl"]
    assert all(m["signal/refused"] > 0.2 for m in steps)
    assert all(m["signal/ran"] > 0.2 for m in steps)
    after = run.read("evaluations")[-1]
    assert after["pass@1"]["estimate"] == pytest.approx(0.5, abs=0.26)
