"""rollouts.jsonl: rows as the world and the method's formula have them; evaluations.jsonl: problem by problem."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_runs import Digits, Stop, StopAt, digits, lines, outcome, policy, recipe

from polopt.metrics import rate_change
from polopt.training.evaluate import change, evaluate
from polopt.training.language import LanguageDomain
from polopt.training.launch import resume, train
from polopt.training.measure import _decided, show
from polopt.training.run import LOGS, Run
from polopt.worlds import Task, TaskSplit

STAGES: dict[str, Any] = {
    "warmup": {"method": "sft", "steps": 6, "rows": 8, "optimiser": {"lr": 0.02}},
    "rl": {"method": "dr-grpo", "steps": 4, "rows": 16, "group": 4},
}
SETTINGS = {"stages": STAGES, "logging": {"rollouts": 2}, "evaluation": {"problems": 8, "quick": 4}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rollouts") / "run"
    train(recipe(**SETTINGS), folder)
    return folder


def test_rows_are_what_the_world_and_the_formula_have(folder: Path) -> None:
    rows = Run(folder).read("rollouts")
    metrics = {m["step"]: m for m in lines(folder, "metrics")}
    assert {row["step"] for row in rows} == {0, 2, 4, 6, 8}
    world = Digits(1000, seed=recipe().seed)
    tasks = {world[i].id: world[i] for i in range(len(world))}
    for step in (6, 8):
        batch = [row for row in rows if row["step"] == step]
        assert len(batch) == 16
        outcomes = np.array([row["outcome"] for row in batch])
        groups = np.array([row["group"] for row in batch])
        scores = [world.score(row["completion"], tasks[row["task"]])[0] for row in batch]
        ended = np.array([not row["truncated"] for row in batch])
        assert outcomes[ended] == pytest.approx(np.array(scores)[ended], rel=1e-6)
        assert len(set(outcomes[ended])) > 1, "else this test shows nothing"
        means = np.array([outcomes[groups == g].mean() for g in groups])
        assert [row["advantage"] for row in batch] == pytest.approx(outcomes - means, abs=1e-6)
        assert [row["reward"] for row in batch] == pytest.approx(outcomes)
        assert [row["solved"] for row in batch] == (outcomes >= 1).tolist()
        assert all(1 <= row["tokens"] <= recipe().limit for row in batch)
        assert [row["prompt"] for row in batch] == [tasks[row["task"]].prompt for row in batch]
        for group in set(groups):
            assert len({row["task"] for row in batch if row["group"] == group}) == 1
        assert np.mean(outcomes) == pytest.approx(metrics[step]["outcome/mean"], rel=1e-6)
        assert np.mean([row["tokens"] for row in batch]) == pytest.approx(metrics[step]["length/mean"])
        assert not any(row["is_demonstration"] for row in batch)
    shown = [row for row in rows if row["step"] < 6]
    assert len(shown) == 3 * 8
    assert [row["completion"] for row in shown] == [tasks[row["task"]].solution for row in shown]
    assert all(row["is_demonstration"] and row["advantage"] == 1 for row in shown)


@pytest.mark.parametrize("at", [7, 8])
def test_a_killed_run_keeps_the_same_rollouts(at: int, folder: Path, tmp_path: Path) -> None:
    """Stopped before and after rows were written that no checkpoint knows of."""
    with pytest.raises(Stop):
        train(recipe(**SETTINGS), tmp_path / "run", watchers=(StopAt(at),))
    resume(tmp_path / "run")
    assert (tmp_path / "run" / "rollouts.jsonl").read_bytes() == (folder / "rollouts.jsonl").read_bytes()
    assert outcome(tmp_path / "run") == outcome(folder)


def test_nobody_asks_for_rollouts_by_default(folder: Path, tmp_path: Path) -> None:
    train(recipe(**SETTINGS | {"logging": {}}), tmp_path / "run")
    assert not (tmp_path / "run" / "rollouts.jsonl").exists()
    for log in set(LOGS) - {"rollouts"}:
        assert lines(tmp_path / "run", log) == lines(folder, log)


def test_turns_stand_apart() -> None:
    tokenizer = policy().tokenizer
    question, first, told, second = (tokenizer.encode(text, add_special_tokens=False) for text in ("ev", "2", "n", "4"))
    ids = [*question, *first, *told, *second, -1, -1]
    decided = [False, False, True, False, True, False, False]
    assert _decided(ids, decided, tokenizer) == "2 ▸ n ▸ 4"
    assert _decided(question, [False, False], tokenizer) == ""


@pytest.mark.parametrize("method", ["raft", "unified-hpt", "spo-tree"])
def test_methods_with_rows_of_other_kinds_are_logged(method: str, tmp_path: Path) -> None:
    stages = {"rl": {"method": method, "steps": 2, "rows": 8, "group": 4}}
    train(recipe(stages=stages, logging={"rollouts": 1}, evaluation={"problems": 1}), tmp_path / "run")
    assert {row["step"] for row in Run(tmp_path / "run").read("rollouts")} == {0, 1}


def test_evaluations_hold_every_problem() -> None:
    domain = LanguageDomain(recipe(**SETTINGS))
    heldout = digits(10, 0).heldout
    tasks = [heldout[i] for i in range(6)]
    found = evaluate(domain.player("rl"), tasks, samples=3)
    counts = [sum(row.solved for row in found.rows[i : i + 3]) for i in range(0, 18, 3)]
    record = found.record()
    assert record["kinds"]["digit"]["solved"] == counts
    assert record["pass@1"]["estimate"] == pytest.approx(sum(counts) / 18)


def record(samples: int = 1, **solved: list[int]) -> dict[str, Any]:
    kinds = {kind: {"problems": len(of), "solved": of} for kind, of in solved.items()}
    return {"samples": samples, "kinds": kinds}


def test_a_change_pairs_problems_within_their_kinds() -> None:
    first, last = record(a=[0, 1, 1, 0], b=[1, 0]), record(b=[1, 1], a=[1, 1, 0, 1])
    assert change(first, last) == rate_change([0, 1, 1, 0, 1, 0], [1, 1, 0, 1, 1, 1])
    assert change(first, last, "a") == rate_change([0, 1, 1, 0], [1, 1, 0, 1])
    assert change(first, last, "b") == rate_change([1, 0], [1, 1])


def test_a_change_counts_samples() -> None:
    found = change(record(4, a=[0, 2, 4, 1]), record(2, a=[1, 1, 2, 1]))
    assert found == rate_change([0, 0.5, 1, 0.25], [0.5, 0.5, 1, 0.5])
    assert found is not None
    assert found.estimate == pytest.approx(0.625 - 0.4375)


def test_a_quick_evaluation_is_compared_as_of_other_problems() -> None:
    found = change(record(a=[1, 0], b=[1]), record(a=[1, 1, 0, 1], b=[1, 0]))
    assert found == rate_change([1, 0, 1], [1, 1, 0, 1, 1, 0])


OLD = {"kinds": {"a": {"estimate": 0.5, "problems": 2}}, "samples": 1}


@pytest.mark.parametrize(
    ("first", "last", "kind"),
    [
        (OLD, record(a=[1, 0]), None),
        (record(a=[1, 0]), OLD, "a"),
        ({"pass@1": {"estimate": 0.5}}, record(a=[1]), None),
        ({"kinds": None}, {"kinds": None}, None),
        ({"kinds": {"a": 0.5}, "samples": 1}, record(a=[1]), None),
        (record(a=[1, 0]), record(a=[1, 0]), "b"),
        (record(a=[1, 0], b=[1]), record(a=[1, 0], c=[1]), None),
        (record(a=[1, 0], b=[1]), record(a=[1], b=[1, 0]), None),
        (record(a=[]), record(a=[]), None),
    ],
)
def test_where_problems_are_not_known_no_change_is_given(first: Any, last: Any, kind: str | None) -> None:
    assert change(first, last, kind) is None


class Reads(Digits):
    """A world that takes the answer backwards, in brackets."""

    def score(self, text: str, task: Task) -> tuple[float, dict[str, Any]]:
        return 0.0, {"answer": f"<{text[::-1]}>"}


def reading(size: int, seed: int) -> TaskSplit:
    return TaskSplit(Reads(size, seed), Reads(size, seed=-1), [])


def test_a_sample_has_what_the_world_read(folder: Path) -> None:
    """It is neither the completion nor the reference; of an answer that was cut off nothing is read."""
    trained, world = {"model": str(folder / "policy")}, {"kind": f"{Path(__file__).resolve()}:reading", "size": 10}
    domain = LanguageDomain(recipe(**SETTINGS, policy=trained, tasks=world))
    task = domain.splits["rl"].train[0]
    found = evaluate(domain.player("rl"), [task], samples=16)
    shown = [show(row, domain.policy.tokenizer) for row in found.rows]
    ended = [not row.truncated for row in found.rows]
    assert sum(ended) > 1
    assert [s["answer"] for s in shown] == [
        f"<{row.answer[::-1]}>" if done else None for row, done in zip(found.rows, ended, strict=True)
    ]
    assert {s["reference"] for s in shown} == {task.reference}


def test_a_world_that_reads_nothing_says_so(folder: Path) -> None:
    samples: list[Mapping[str, Any]] = Run(folder).read("samples")
    assert samples
    assert all(sample["answer"] is None for sample in samples)
