"""Stages with a world, a limit, an end and parameters of their own; killed and resumed in any of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from tiny_runs import DIGITS, GUESS, Stop, StopAt, lines, outcome, recipe

from polopt.config import ConfigError
from polopt.training.launch import resume, train

STAGES: dict[str, Any] = {
    "warmup": {
        "method": "sft",
        "steps": 30,
        "rows": 16,
        "optimiser": {"lr": 0.03},
        "until": {"metric": "loss", "below": 1.5, "over": 2},
    },
    "other": {"method": "sft", "steps": 3, "rows": 4, "tasks": GUESS, "limit": 2, "train": "wpe"},
    "rl": {"method": "reinforce", "steps": 6, "rows": 8},
}


def test_a_stage_ends_when_it_is_done(tmp_path: Path) -> None:
    settings = recipe(stages=STAGES)
    train(settings, tmp_path / "run")
    records = lines(tmp_path / "run", "metrics")
    losses = [r["loss"] for r in records if r["stage"] == "warmup"]
    assert 2 <= len(losses) < 30
    met = [sum(losses[i - 1 : i + 1]) / 2 <= 1.5 for i in range(1, len(losses))]
    assert met == [False] * (len(met) - 1) + [True]
    assert [r["stage"] for r in records[len(losses) :]] == ["other"] * 3 + ["rl"] * 6
    assert [r["step"] for r in records] == list(range(len(records)))


@pytest.mark.parametrize("where", ["warmup", "other", "rl"])
def test_resuming_in_any_stage_is_an_equality(where: str, tmp_path: Path) -> None:
    settings = recipe(stages=STAGES)
    train(settings, tmp_path / "through")
    at = next(r["step"] for r in lines(tmp_path / "through", "metrics") if r["stage"] == where) + 1
    with pytest.raises(Stop):
        train(settings, tmp_path / "stopped", watchers=(StopAt(at),))
    resume(tmp_path / "stopped")
    assert outcome(tmp_path / "through") == outcome(tmp_path / "stopped")


def test_only_what_is_named_learns(tmp_path: Path) -> None:
    stages = {
        "a": {"method": "sft", "steps": 2, "rows": 4, "train": "wpe"},
        "b": {"method": "sft", "steps": 2, "rows": 4},
    }
    train(recipe(stages=stages, checkpoint=1), tmp_path / "run")
    found = tmp_path / "run" / "checkpoints"
    one, two = (load_file(found / f"{n:08d}" / "state.safetensors") for n in (3, 4))
    assert any(not one[k].equal(two[k]) for k in one if k.startswith("policy.") and "wpe" not in k)
    train(recipe(stages={"a": {**stages["a"], "steps": 1}}, checkpoint=1), tmp_path / "first")
    train(recipe(stages={"a": {**stages["a"], "steps": 2}}, checkpoint=1), tmp_path / "second")
    one = load_file(tmp_path / "second" / "checkpoints" / "00000001" / "state.safetensors")
    two = load_file(tmp_path / "second" / "checkpoints" / "00000002" / "state.safetensors")
    moved = {k for k in one if k.startswith("policy.") and not one[k].equal(two[k])}
    assert moved
    assert all("wpe" in k for k in moved)


def test_what_is_wrong_is_said_at_the_door(tmp_path: Path) -> None:
    rl = STAGES["rl"]
    for changes, message in (
        ({"train": "no such layer"}, "is found in no parameter's name"),
        ({"until": {"metric": "loss"}}, "needs one bound, above or below"),
        ({"train": "("}, "is no regular expression"),
    ):
        with pytest.raises(ConfigError, match=message):
            train(recipe(stages={"rl": {**rl, **changes}}), tmp_path / "run")
    typo = {"method": "sft", "steps": 2, "rows": 4, "until": {"metric": "los", "below": 1}}
    with pytest.raises(ConfigError, match=r"until\.metric = 'los' is not logged; did you mean 'loss'"):
        train(recipe(stages={"rl": typo}), tmp_path / "run")
    guess = {"kind": "guess-number", "lo": 1}
    with pytest.raises(ConfigError, match="lo"):
        train(recipe(stages={"rl": {**rl, "tasks": guess}}, tasks=DIGITS), tmp_path / "other")


def test_signals_that_the_tasks_do_not_tell_are_refused(tmp_path: Path) -> None:
    stages = {"rl": {**STAGES["rl"], "method": f"{Path(__file__).resolve()}:reads_a_signal"}}
    with pytest.raises(ConfigError, match=r"reads extras\.signal_flawed, which the tasks do not report"):
        train(recipe(stages=stages), tmp_path / "run")
    chains = {"kind": "chains", "train": 50, "heldout": 8}
    train(recipe(stages=stages, tasks=chains, limit=8), tmp_path / "chains")
    assert len(lines(tmp_path / "chains", "metrics")) == 6


def reads_a_signal() -> Any:
    import polopt as po

    class Honest(po.rewards.Reward):
        reads = frozenset({"outcome", "extras.signal_flawed"})

        def forward(self, experience: po.Experience) -> Any:
            return experience.outcome - experience.extras["signal_flawed"]

    return po.method("reinforce").but(reward=Honest())


def test_every_sampled_token_is_counted(tmp_path: Path) -> None:
    """Filters drop rows that were paid for all the same."""
    stages = {"rl": {"method": {"name": "dapo", "refills": 1}, "steps": 3, "rows": 8, "group": 4}}
    train(recipe(stages=stages), tmp_path / "run")
    for record in lines(tmp_path / "run", "metrics"):
        assert record["sampled"] >= record.get("tokens", 0)
        assert record["sampled"] > 0
