"""Rollouts that one stage writes and a later one learns from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_named_policies import batches_of
from test_stage_starts import RL, SFT, staged
from tiny_runs import GUESS, Stop, StopAt, lines, outcome, recipe

from polopt.config import ConfigError
from polopt.objectives import ReferenceKL
from polopt.training.estimate import estimate
from polopt.training.launch import resume, train
from polopt.training.recipe import Recipe

SEARCH = RL | {"steps": 3, "rows": 8, "group": 4, "writes": "found"}
DPO: dict[str, Any] = {"method": "dpo", "steps": 2, "rows": 4, "data": {"stage": "search"}}


def imitating(**data: Any) -> Recipe:
    learn = SFT | {"steps": 4, "rows": 8, "data": {"stage": "search", **data}}
    return staged(sft=SFT, search=SEARCH, learn=learn).model_copy(update={"rounds": 2})


def written(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "written-found.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(imitating(), tmp_path_factory.mktemp("finished") / "run").folder


def test_every_rollout_is_written_once(tmp_path: Path) -> None:
    made = staged(sft=SFT, search=SEARCH, learn=SFT | {"data": {"stage": "search"}})
    made = made.model_copy(update={"logging": made.logging.model_copy(update={"rollouts": 1})})
    folder = train(made, tmp_path / "run").folder
    sampled = [row for row in lines(folder, "rollouts") if 2 <= row["step"] < 5]
    found = written(folder)
    assert len(found) == 24 == len(sampled)
    for row, line in zip(sampled, found, strict=True):
        names = ("step", "task", "kind", "group", "prompt", "outcome", "truncated")
        assert {name: row[name] for name in names} == {name: line[name] for name in names}
        assert line["answer"] == row["completion"]
        assert line["stage"] == "search"
        assert line["index"] == int(line["task"].split("/")[-1])


def learned(made: Recipe, folder: Path, steps: range, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    """(prompt, answer, rejected answer) of each row of the steps' batches."""
    batches = [batch for step, batch in enumerate(batches_of(made, folder, monkeypatch)) if step in steps]
    tasks = [task for batch in batches for task in batch.extras["task"]]
    return [(task.prompt, task.solution, task.rated[1].text if task.rated else None) for task in tasks]


@pytest.mark.parametrize("least", [None, 0.5])
def test_whole_answers_of_this_round_are_imitated(
    least: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    found = learned(imitating(min_outcome=least), run, range(14, 18), monkeypatch)
    lines = [line for line in written(run) if line["round"] == 2 and not line["truncated"]]
    expected = {(line["prompt"], line["answer"], None) for line in lines if line["outcome"] >= (least or 0)}
    assert len(found) == 32 >= len(expected) > 1  # every one at least once
    assert set(found) == expected
    assert least is None or len(expected) < len({(line["prompt"], line["answer"]) for line in lines})


def test_all_rounds_may_be_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    found = set(learned(imitating(all_rounds=True), run, range(14, 18), monkeypatch))
    both = [{(r["prompt"], r["answer"], None) for r in written(run) if r["round"] == number} for number in (1, 2)]
    assert found <= both[0] | both[1]
    assert found - both[1]


def test_best_and_worst_of_a_group_are_a_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    found = learned(staged(sft=SFT, search=SEARCH, dpo=DPO | {"steps": 8}), run, range(5, 13), monkeypatch)
    expected = set()
    for step in (2, 3, 4):
        for group in (0, 1):
            rows = [r for r in written(run) if (r["step"], r["group"], r["truncated"]) == (step, group, False)]
            rows.sort(key=lambda r: -r["outcome"])  # stable: the first of equals is the first
            if rows and rows[0]["outcome"] > rows[-1]["outcome"]:
                worst = next(r for r in rows if r["outcome"] == rows[-1]["outcome"])
                expected.add((rows[0]["prompt"], rows[0]["answer"], worst["answer"]))
    assert expected
    assert set(found) == expected


@pytest.mark.parametrize("at", [3, 4, 6, 12, 15])
def test_no_line_is_lost_or_written_twice(at: int, finished: Path, tmp_path: Path) -> None:
    with pytest.raises(Stop):
        train(imitating(), tmp_path / "run", watchers=(StopAt(at),))
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(finished)
    name = "written-found.jsonl"
    assert (tmp_path / "run" / name).read_bytes() == (finished / name).read_bytes()


def test_what_cannot_be_handed_on_is_refused(tmp_path: Path) -> None:
    def refused(**stages: Any) -> str:
        with pytest.raises(ConfigError) as error:
            train(staged(**stages), tmp_path / "run")
        assert not (tmp_path / "run").exists()
        return str(error.value)

    data = {"data": {"stage": "search"}}
    silent = {name: value for name, value in SEARCH.items() if name != "writes"}
    assert "stages.learn.data.stage = 'search' writes nothing" in refused(search=silent, learn=SFT | data)
    assert "give one of other" in refused(other=SEARCH, search=silent, learn=SFT | data)
    assert "give an earlier stage" in refused(learn=SFT | data, search=SEARCH)
    assert "stages.rl.data holds answers to imitate or to compare" in refused(search=SEARCH, rl=RL | data)
    assert "two stages write to 'found'" in refused(search=SEARCH, again=SEARCH, learn=SFT)
    with pytest.raises(ConfigError, match=r"stages\.search\.writes: single answers are written"):
        train(recipe(stages={"search": SEARCH, "learn": SFT | data}, tasks=GUESS), tmp_path / "run")


def test_a_dry_run_tries_stages_that_read_others() -> None:
    guided = {"objective.regularise": [ReferenceKL(anchor="guide")]}
    last = DPO | {"start": {"stage": "search"}, "policies": {"guide": {"stage": "sft"}}, "but": guided}
    made = staged(sft=SFT, search=SEARCH, imitate=SFT | {"data": {"stage": "search"}}, dpo=last)
    once, twice = (estimate(made.model_copy(update={"rounds": rounds}), seconds=0.0) for rounds in (1, 2))
    assert set(once.steps) == {"sft", "search", "imitate", "dpo"}
    assert twice.total is not None


def test_a_stage_that_finds_nothing_to_learn_from_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"wrote 24 rollouts, and no whole answer of outcome 7 or more"):
        train(imitating(min_outcome=7.0), tmp_path / "run")
