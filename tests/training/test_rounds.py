"""All stages several times: what a round begins with, resuming at each place, and what is shown of it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from test_stage_starts import RL, SFT, staged
from tiny_runs import Stop, StopAt, lines, outcome

from polopt.config import ConfigError
from polopt.display.live import Lines
from polopt.display.progress import Progress
from polopt.errors import RunError
from polopt.objectives import ReferenceKL
from polopt.report.run import read_run
from polopt.report.summary import changes
from polopt.schedules import Schedule
from polopt.training.launch import resume, train
from polopt.training.recipe import Recipe

KL = RL | {"method": {"name": "grpo", "kl": 0.1}}


def rounds(count: int, **stages: Any) -> Recipe:
    return staged(**stages).model_copy(update={"rounds": count})


def test_two_rounds_are_the_stages_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with an optimiser, a reference and an algorithm of its own, in another order of tasks."""
    rising = ReferenceKL(coefficient=Schedule(knots=[(0, 0.0), (4, 1.0)]))  # counts batches
    last = RL | {"but": {"objective.regularise": [rising]}, "optimiser": {"lr": 0.03}}
    twice = train(rounds(2, a=SFT, b=last), tmp_path / "twice").folder
    plain = Recipe.seed_of

    def seed_of(self: Recipe, *purpose: object) -> int:
        names = {"a2": ("a", "round 2"), "b2": ("b", "round 2")}
        found = [part for each in purpose for part in names.get(str(each), (each,))]
        return plain(self, *found)

    monkeypatch.setattr(Recipe, "seed_of", seed_of)
    unrolled = train(staged(a=SFT, b=last, a2=SFT, b2=last), tmp_path / "unrolled").folder
    found, expected = (load_file(folder / "policy" / "model.safetensors") for folder in (twice, unrolled))
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    steps = [(line["stage"], line["round"], line["stage_step"], line["loss"]) for line in lines(twice, "metrics")]
    places = {"a": ("a", 1), "b": ("b", 1), "a2": ("a", 2), "b2": ("b", 2)}
    assert steps == [(*places[line["stage"]], line["stage_step"], line["loss"]) for line in lines(unrolled, "metrics")]


@pytest.fixture(scope="module")
def flow() -> Recipe:
    soup = {"average": ["initial", {"stage": "a"}]}
    last = KL | {"steps": 1, "start": {"stage": "a"}, "policies": {"reference": soup}}
    return rounds(3, a=SFT | {"steps": 1}, b=KL | {"steps": 2}, c=last)


@pytest.fixture(scope="module")
def undisturbed(flow: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(flow, tmp_path_factory.mktemp("undisturbed") / "run").folder


@pytest.mark.parametrize("at", [3, 5, 6, 11])
def test_a_run_that_stops_goes_on_in_its_round(at: int, flow: Recipe, undisturbed: Path, tmp_path: Path) -> None:
    with pytest.raises(Stop):
        train(flow, tmp_path / "run", watchers=(StopAt(at),))
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(undisturbed)


def test_what_no_checkpoint_needs_is_removed(undisturbed: Path) -> None:
    kept = sorted(path.name for path in undisturbed.glob("*.safetensors"))
    assert kept == ["end-a.round-3.safetensors", "initial.safetensors", "reference-b.round-3.safetensors"]


def test_records_carry_the_round(undisturbed: Path) -> None:
    assert [line["round"] for line in lines(undisturbed, "metrics")] == [1] * 4 + [2] * 4 + [3] * 4
    when = [(e["round"], e["when"], e["step"]) for e in lines(undisturbed, "evaluations")]
    assert when == [(r, w, 4 * r - 4 + s) for r in (1, 2, 3) for w, s in (("before", 3), ("after", 4))]
    run = read_run(undisturbed)
    assert [name for name, _, _ in run.stages()][2:5] == ["c, round 1", "a, round 2", "b, round 2"]
    (change,) = changes(run)
    assert change.final
    assert (change.first["round"], change.last["round"]) == (1, 3)
    run.evaluations.pop(), run.evaluations.pop()
    assert not changes(run)[0].final


def test_progress_counts_all_rounds(flow: Recipe, undisturbed: Path) -> None:
    shown = io.StringIO()
    watcher = Lines(Console(file=shown, width=200), Progress(undisturbed))
    watcher.begin(flow, {"parameters": 1, "step": 0, "seconds": 0.0})
    assert watcher.progress.total == 12
    for line in lines(undisturbed, "metrics")[:7]:
        watcher.step(line | {"seconds": 0.0, "tokens_per_second": 1.0})
    assert watcher.progress.steps == 7
    assert watcher.progress.done == {"a": 2, "b": 4, "c": 1}
    assert "round 2/3, b 2/2" in shown.getvalue()


def test_a_run_with_rounds_can_have_more_of_them(flow: Recipe, undisturbed: Path, tmp_path: Path) -> None:
    train(flow.model_copy(update={"rounds": 2}), tmp_path / "run")
    with pytest.raises(RunError, match=r"stages\.c\.steps 1 -> 2 would make it another run"):
        resume(tmp_path / "run", changes={"stages.c.steps": 2})
    resume(tmp_path / "run", changes={"rounds": 3})
    assert outcome(tmp_path / "run") == outcome(undisturbed)


def test_a_stage_cannot_start_from_a_later_one_of_the_round_before(flow: Recipe) -> None:
    with pytest.raises(ConfigError, match="names stage b, which has not been run by then"):
        staged(a=SFT | {"start": {"stage": "b"}}, b=SFT)
    assert "rounds" not in staged(a=SFT).to_yaml()
    assert Recipe.of_yaml(flow.to_yaml()) == flow
