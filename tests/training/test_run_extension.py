"""Runs that go on: the same call again, more steps, and the checkpoints that stay."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from tiny_runs import Stop, StopAt, lines, outcome, recipe

from polopt.config import ConfigError, parse
from polopt.errors import PoloptWarning, RunError
from polopt.training import launch
from polopt.training.conversion import policy_at
from polopt.training.language_recipe import LanguageRecipe
from polopt.training.launch import resume, train
from polopt.training.loop import Training
from polopt.training.run import Run
from polopt.training.specs import CheckpointSpec
from polopt.training.trained import evaluate_folder


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def stages(steps: int, **optimiser: Any) -> dict[str, Any]:
    rl = {"method": {"name": "grpo", "kl": 0.1}, "steps": steps, "rows": 8, "group": 4}
    warmup = {"method": "sft", "steps": 2, "rows": 8, "optimiser": {"lr": 0.01}}
    return {"warmup": warmup, "rl": {**rl, "optimiser": {"lr": 0.005, **optimiser}}}


def longer(steps: int, decay: str = "constant") -> LanguageRecipe:
    return recipe(stages=stages(steps, decay=decay))


def without_ends(result: dict[str, Any]) -> dict[str, Any]:
    """An outcome without the evaluations at the ends that the run had, and the samples of them."""
    last = result["position"]["step"]
    kept = {n: [e for e in result[n] if e["when"] != "after" or e["step"] == last] for n in ("evaluations", "samples")}
    return result | kept


@pytest.mark.parametrize("stop", [None, 4], ids=["finished", "unfinished"])
def test_more_steps_are_those_of_the_longer_run(stop: int | None, tmp_path: Path) -> None:
    train(longer(7), tmp_path / "longer")
    if stop is None:
        train(longer(4), tmp_path / "run")
    else:
        with pytest.raises(Stop):
            train(longer(4), tmp_path / "run", watchers=(StopAt(stop),))
    with warnings.catch_warnings():
        warnings.simplefilter("error", PoloptWarning)
        resume(tmp_path / "run", changes={"stages.rl.steps": 7})
    assert without_ends(outcome(tmp_path / "run")) == outcome(tmp_path / "longer")
    about = Run(tmp_path / "run").about
    (note,) = about["extensions"]
    assert note["changed"] == ["stages.rl.steps 4 -> 7"]
    assert note["exact"]
    assert about["finished"]
    assert (tmp_path / "run" / "recipe.yaml").read_text() == longer(7).to_yaml() == about["recipe"]
    with pytest.warns(PoloptWarning, match="has finished already"):
        train(longer(7), tmp_path / "run")


def test_a_schedule_that_depends_on_the_end_is_said(tmp_path: Path) -> None:
    train(longer(3, "linear"), tmp_path / "run")
    with pytest.warns(PoloptWarning, match="decay = linear depends on the number of steps"):
        resume(tmp_path / "run", changes={"stages.rl.steps": 6})
    assert Run(tmp_path / "run").about["extensions"][0]["exact"] is False
    # By hand: 0.005 (1 - t/3) for the first three steps, then 0.005 (1 - t/6).
    rates = [m["lr"] for m in lines(tmp_path / "run", "metrics")[2:]]
    assert rates == pytest.approx([0.005 * (1 - t / (3 if t < 3 else 6)) for t in range(6)])


def test_evaluation_may_be_changed_and_an_end_by_until_not(tmp_path: Path) -> None:
    until = {"metric": "rows", "above": 1.0}
    first = stages(4)
    train(recipe(stages={**first, "rl": {**first["rl"], "until": until}}), tmp_path / "run")
    assert len(lines(tmp_path / "run", "metrics")) == 3
    with pytest.raises(RunError, match="may have ended by its `until`"):
        resume(tmp_path / "run", changes={"stages.rl.steps": 9})
    resume(tmp_path / "run", changes={"evaluation.quick": 3})
    assert Run(tmp_path / "run").about["extensions"][0]["changed"] == ["evaluation.quick 4 -> 3"]
    with pytest.raises(ConfigError, match="stepz is not a setting"):
        resume(tmp_path / "run", changes={"stages.rl.stepz": 9})


def test_killed_while_it_is_extended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between run.json and recipe.yaml: the run is what it was, and can be extended again."""
    train(longer(3), tmp_path / "run")
    before = (tmp_path / "run" / "recipe.yaml").read_text()
    rename = Path.rename

    def dies(path: Path, to: Path) -> Any:
        if Path(to).name == "recipe.yaml":
            raise Stop
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", dies)
    with pytest.raises(Stop):
        resume(tmp_path / "run", changes={"stages.rl.steps": 5})
    monkeypatch.undo()
    assert (tmp_path / "run" / "recipe.yaml").read_text() == before
    resume(tmp_path / "run")
    assert len(lines(tmp_path / "run", "metrics")) == 5
    resume(tmp_path / "run", changes={"stages.rl.steps": 5})
    train(longer(5), tmp_path / "longer")
    assert without_ends(outcome(tmp_path / "run")) == outcome(tmp_path / "longer")


def test_the_same_call_again_goes_on(tmp_path: Path) -> None:
    """As a job that is killed and started again: the end is that of one call."""
    train(longer(4), tmp_path / "whole")
    for stop in (1, 3, 4):
        with pytest.raises(Stop):
            train(longer(4), tmp_path / "run", watchers=(StopAt(stop),))
    assert not launch.is_finished(longer(4), tmp_path / "run")
    train(longer(4), tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")
    with pytest.raises(RunError, match=r"stages\.rl\.optimiser\.lr 0\.005 -> 0\.1; name another folder"):
        train(recipe(stages=stages(4, lr=0.1)), tmp_path / "run")


class Estimates:
    """Evaluations that come out as they are told, in order."""

    def __init__(self, *estimates: float) -> None:
        self.left = list(estimates)

    def __call__(self, training: Any, stage: str, when: str, problems: int) -> None:
        record = {"step": training.global_step, "stage": stage, "when": when, "pass@1": {"estimate": self.left.pop(0)}}
        training.run_folder.log("evaluations", record)


# Estimates before the first of eight steps and after each second one -> the steps whose checkpoints stay.
BEST = {
    "in-the-middle": ([0.1, 0.3, 0.8, 0.2, 0.4], [4, 6, 8]),
    "the-last": ([0.1, 0.3, 0.4, 0.5, 0.6], [6, 8]),
    "the-first": ([0.1, 0.9, 0.4, 0.5, 0.6], [2, 6, 8]),
    "the-earliest-of-equals": ([0.1, 0.5, 0.5, 0.5, 0.5], [2, 6, 8]),
    "before-training-has-none": ([0.9, 0.3, 0.2, 0.1, 0.2], [2, 6, 8]),
}


@pytest.mark.parametrize("name", BEST)
@pytest.mark.parametrize("stops", [False, True])
def test_the_best_checkpoint_stays(name: str, stops: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    estimates, kept = BEST[name]
    monkeypatch.setattr(Training, "_evaluate", lambda *given: told(*given))
    settings = recipe(
        stages={"rl": {"method": "grpo", "steps": 8, "rows": 8, "group": 4}},
        evaluation={"problems": 4, "quick": 4, "every": 2},
        checkpoint={"every": 2, "keep": 2, "best": "pass@1"},
    )
    told = Estimates(*estimates)
    if stops:
        with pytest.raises(Stop):
            train(settings, tmp_path, watchers=(StopAt(6),))
        assert Run(tmp_path).checkpoint == 6
    train(settings, tmp_path)
    assert Run(tmp_path)._checkpoints.steps() == kept
    best = max(range(1, 5), key=lambda i: (estimates[i], -i))
    assert Run(tmp_path).best("pass@1", "rl") == (2 * best, estimates[best])


def test_a_rise_between_checkpoints_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Estimates(0.5, 0.1, 0.4, 0.3, 0.2)  # before, and after steps 1, 2, 3 and 4
    monkeypatch.setattr(Training, "_evaluate", lambda *given: told(*given))
    train(
        recipe(
            stages={"rl": {"method": "grpo", "steps": 4, "rows": 8, "group": 4}},
            evaluation={"problems": 4, "quick": 4, "every": 1},
            checkpoint={"every": 3, "keep": 1, "best": "pass@1"},
        ),
        tmp_path,
    )
    assert Run(tmp_path)._checkpoints.steps() == [2, 4]


def test_the_policy_of_the_best_and_of_the_last(tmp_path: Path) -> None:
    """A run whose steps differ: each checkpoint gives the weights that it holds, and evaluation takes those."""
    settings = recipe(
        stages=stages(4), checkpoint={"every": 1, "keep": 3, "best": "pass@1"}, evaluation={"problems": 4, "every": 1}
    )
    run = train(settings, tmp_path)
    assert Run(tmp_path)._checkpoints.steps()[-3:] == [4, 5, 6]
    rates = {e["step"]: e["pass@1"]["estimate"] for e in run.read("evaluations") if e["stage"] == "rl"}
    there = [step for step in Run(tmp_path)._checkpoints.steps() if step in rates]
    best = max(there, key=lambda step: (rates[step], -step))
    held = load_file(tmp_path / "checkpoints" / f"{best:08d}" / "state.safetensors")
    for name, value in policy_at(tmp_path, "best").own_parameters().items():
        assert torch.equal(value, held[f"policy.{name}"])
    assert evaluate_folder(tmp_path, checkpoint="last").record() == evaluate_folder(tmp_path).record()
    assert evaluate_folder(tmp_path, checkpoint=6).record() == evaluate_folder(tmp_path).record()
    with pytest.raises(RunError, match="has no checkpoint of step 77; it has "):
        evaluate_folder(tmp_path, checkpoint=77)


def test_how_checkpoints_are_set() -> None:
    assert recipe(checkpoint=7).checkpoint == CheckpointSpec(every=7, keep=2, best=None)
    made = recipe(checkpoint={"every": 5, "keep": 3})
    assert parse(LanguageRecipe, yaml.safe_load(made.to_yaml()), "again") == made
    with pytest.raises(ConfigError, match=r"checkpoint\.best = 'pass@4' is not evaluated; give pass@1"):
        recipe(checkpoint={"best": "pass@4"})
    with pytest.raises(ConfigError, match=r"needs evaluations during training, and evaluation\.every is 0"):
        recipe(checkpoint={"best": "pass@1"})
    with pytest.raises(ConfigError, match="checkpoint"):
        recipe(checkpoint=0)


def test_no_checkpoint_is_the_best_without_evaluations(tmp_path: Path) -> None:
    train(recipe(stages={"warmup": stages(1)["warmup"], "rl": {**stages(1)["rl"], "steps": 1}}), tmp_path)
    path = tmp_path / "evaluations.jsonl"
    path.write_text("")
    assert json.loads((tmp_path / "run.json").read_text())["best_by"] == "pass@1"
    with pytest.raises(RunError, match="no checkpoint that was evaluated in its last stage"):
        Run(tmp_path).tensors("best")
