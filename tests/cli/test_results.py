"""The end of `polopt train`: the change with its interval, and what a careful reader would point out."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from command import flat
from rich.console import Console

from polopt.cli.results import accuracy_table, points, show_results
from polopt.metrics import rate_change
from polopt.training.run import Run

BEFORE = {"a": [1, 0, 0, 0] * 5, "b": [0] * 20}
AFTER = {"a": [1, 1, 1, 0] * 5, "b": [1] + [0] * 19}


def evaluation(step: int, when: str, solved: dict[str, list[int]]) -> dict[str, Any]:
    def rate(some: list[int]) -> dict[str, float]:
        return {"estimate": sum(some) / len(some), "low": 0.0, "high": 1.0}

    everything = [count for some in solved.values() for count in some]
    kinds = {kind: {**rate(some), "problems": len(some), "solved": some} for kind, some in solved.items()}
    place = {"step": step, "stage": "rl", "when": when, "problems": len(everything), "samples": 1}
    return {**place, "pass@1": rate(everything), "kinds": kinds}


def shown(table: Any) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined]


def change(before: list[int], after: list[int]) -> str:
    found = rate_change(before, after)
    return f"{100 * found.estimate:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"


def test_the_table_has_the_interval_of_every_change() -> None:
    table = shown(accuracy_table(evaluation(0, "before", BEFORE), evaluation(4, "after", AFTER))).splitlines()
    assert next(line for line in table if line.startswith("all")).endswith(
        change(BEFORE["a"] + BEFORE["b"], AFTER["a"] + AFTER["b"])
    )
    for kind in ("a", "b"):
        assert next(line for line in table if line.startswith(f"{kind} ")).endswith(change(BEFORE[kind], AFTER[kind]))


def test_an_older_record_has_no_interval() -> None:
    before = evaluation(0, "before", BEFORE)
    for of in before["kinds"].values():
        del of["solved"]
    assert points(before, evaluation(4, "after", AFTER), None) == "–"


@pytest.mark.parametrize("stepped", [False, True])
def test_a_run_without_an_optimiser_step_says_so(tmp_path: Path, stepped: bool) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"finished": True, "seconds": 61.0}))
    evaluations = [evaluation(0, "before", BEFORE), evaluation(4, "after", AFTER)]
    group = {"groups/signal": 0.0, "groups/mixed": 0.0, "groups/size_max": 1.0}
    metrics = [{"step": i, "stage": "rl", **group, **({"grad_norm": 1.0} if stepped else {})} for i in range(4)]
    for name, records in (("evaluations", evaluations), ("metrics", metrics), ("samples", [])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    console = Console(file=io.StringIO(), width=120)
    show_results(console, Run(tmp_path))
    output = flat(console.file.getvalue())  # type: ignore[attr-defined]
    assert ("No optimiser step was made in stage rl:" in output) == (not stepped)
    assert "a group is one answer" in output
    assert "too easy or too hard" not in output
    assert str(tmp_path / "report.html") in output
