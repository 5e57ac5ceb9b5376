"""What a stage begins with: an earlier stage's end, another run's, the policy as it was made, and means of these."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny_runs import MODEL, Stop, StopAt, outcome, recipe

from polopt.config import ConfigError
from polopt.errors import RunError
from polopt.training import recipe as recipes
from polopt.training.launch import create, resume, train
from polopt.training.recipe import Recipe
from polopt.training.run import Run

HERE = {"where": "here"}
SFT: dict[str, Any] = {"method": "sft", "steps": 2, "rows": 4, "optimiser": {"lr": 0.03}}
RL: dict[str, Any] = {"method": "grpo", "steps": 2, "rows": 4, "group": 4, "micro_rows": 2}


def staged(seed: int = 0, **stages: Any) -> Recipe:
    return recipe(stages=stages, seed=seed, evaluation={"problems": 2}, episodes=HERE, checkpoint=1)


class Before:
    """A watcher that remembers the policy's weights as they were at the evaluation before the last stage."""

    def __init__(self) -> None:
        self.domain: Any = None
        self.weights: dict[str, torch.Tensor] = {}

    def begin(self, recipe: Recipe, about: Any) -> None: ...
    def step(self, record: Any) -> None: ...

    def evaluation(self, record: Any) -> None:
        if record["when"] == "before":
            self.weights = {n: p.detach().clone() for n, p in self.domain.policy.named_parameters()}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two finished runs of one architecture."""
    folder = tmp_path_factory.mktemp("runs")
    return [train(staged(seed, sft=SFT), folder / str(seed)).folder for seed in (1, 2)]


def policy_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "policy" / "model.safetensors")


def weights_before(made: Recipe, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, torch.Tensor]:
    """The weights with which the last stage began, by their names in the model's file."""
    from polopt.training import loop

    watcher, begin = Before(), loop.Training.__init__

    def spied(self: Any, recipe: Any, run: Any, domain: Any, *rest: Any) -> None:
        watcher.domain = domain
        begin(self, recipe, run, domain, *rest)

    monkeypatch.setattr(loop.Training, "__init__", spied)
    train(made, folder, watchers=(watcher,))
    return {name.removeprefix("model."): value for name, value in watcher.weights.items()}


@pytest.mark.parametrize("shares", [None, [0.25, 0.75], [1.5, -0.5]])
def test_a_soup_is_the_mean_of_the_files(
    runs: list[Path], shares: list[float] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soup = {"average": [{"run": str(run)} for run in runs], "weights": shares}
    found = weights_before(staged(rl=RL | {"start": soup}), tmp_path / "run", monkeypatch)
    one, other = map(policy_of, runs)
    first, second = shares or (0.5, 0.5)
    assert any(not torch.equal(one[name], other[name]) for name in one)
    for name, value in one.items():
        expected = first * value.double().numpy() + second * other[name].double().numpy()
        assert torch.equal(found[name], torch.from_numpy(expected).float()), name


def test_a_stage_starts_with_what_an_earlier_one_ended_with(tmp_path: Path) -> None:
    """As in a run without the stage in between; nothing here draws numbers that the stages share."""
    last = SFT | {"steps": 3}
    between = train(staged(a=SFT, b=SFT | {"steps": 1}, c=last | {"start": {"stage": "a"}}), tmp_path / "between")
    alone = train(staged(a=SFT, c=last), tmp_path / "alone")
    further = train(staged(a=SFT, b=SFT | {"steps": 1}, c=last), tmp_path / "further")
    found, expected, other = (policy_of(run.folder) for run in (between, alone, further))
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert any(not torch.equal(other[name], expected[name]) for name in expected)
    kept = sorted(path.name for path in between.folder.glob("*.safetensors"))
    assert kept == ["end-a.safetensors"]
    assert not list(further.folder.glob("*.safetensors"))


def test_initial_is_the_policy_as_the_recipe_makes_it(tmp_path: Path) -> None:
    again = train(staged(a=SFT, c=SFT | {"start": "initial"}), tmp_path / "again")
    alone = train(staged(c=SFT), tmp_path / "alone")
    found, expected = policy_of(again.folder), policy_of(alone.folder)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.fixture(scope="module")
def flow(runs: list[Path]) -> Recipe:
    soup = {"average": ["initial", {"stage": "a"}, {"run": str(runs[0])}]}
    return staged(a=SFT, b=RL | {"start": {"run": str(runs[1])}}, c=RL | {"start": soup, "method": "gspo"})


@pytest.fixture(scope="module")
def undisturbed(flow: Recipe, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return outcome(train(flow, tmp_path_factory.mktemp("undisturbed") / "run").folder)


@pytest.mark.parametrize("at", [1, 2, 5])
def test_a_run_that_stops_goes_on(at: int, flow: Recipe, undisturbed: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(Stop):
        train(flow, tmp_path / "run", watchers=(StopAt(at),))
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == undisturbed


@pytest.mark.parametrize("saves", [1, 2])
def test_a_run_that_dies_between_a_stages_end_and_its_checkpoint_goes_on(
    saves: int, flow: Recipe, undisturbed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = []

    def save(self: Run, *args: Any, **kwargs: Any) -> None:
        if len(done) == saves:
            raise Stop
        done.append(1)
        whole(self, *args, **kwargs)

    whole = Run.save
    with monkeypatch.context() as patch:
        patch.setattr(Run, "save", save)
        with pytest.raises(Stop):
            train(flow, tmp_path / "run")
    assert (tmp_path / "run" / "end-a.safetensors").exists()
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == undisturbed


def test_a_run_that_others_start_with_may_not_change(runs: list[Path], tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(runs[0], other)
    begun = create(staged(rl=RL | {"start": {"run": str(other)}}), tmp_path / "run").folder
    weights = other / "policy" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    with pytest.raises(RunError, match=r"model\.safetensors holds other bytes"):
        resume(begun)


def test_what_does_not_fit_is_refused_at_the_door(runs: list[Path], tmp_path: Path) -> None:
    def refused(start: Any, **changes: Any) -> str:
        made = recipe(stages={"rl": RL | {"start": start}}, episodes=HERE, **changes)
        with pytest.raises(ConfigError) as error:
            train(made, tmp_path / "run")
        assert not (tmp_path / "run").exists()
        return str(error.value)

    start = {"run": str(runs[0])}
    assert "another architecture, n_embd is 16 there and 8 here" in refused(
        start, policy={"config": MODEL | {"n_embd": 8}}
    )
    assert "another architecture, n_head is 2 there" in refused(start, policy={"config": MODEL | {"n_head": 4}})
    soup = {"average": ["initial", {"average": [start]}]}
    assert "stages.rl.start" in refused(soup, policy={"config": MODEL | {"n_layer": 2}})
    words = {"kind": "guess-number", "low": 1, "high": 5, "turns": 3, "train": 50, "heldout": 10}
    assert "has another tokenizer: token" in refused(start, tasks=words)
    assert "is no run's folder" in refused({"run": str(tmp_path / "none")})
    unfinished = create(staged(sft=SFT), tmp_path / "unfinished").folder
    assert f"polopt train --resume {unfinished}" in refused({"run": str(unfinished)})


def test_stages_that_have_not_been_run_by_then_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"stages\.b.start names stage 'sfx', which is not there; did you mean 'sft'"):
        staged(sft=SFT, b=RL | {"start": {"stage": "sfx"}})
    with pytest.raises(ConfigError, match="names stage rl, which has not been run by then; give one of sft"):
        staged(sft=SFT, rl=RL | {"start": {"stage": "rl"}})
    with pytest.raises(ConfigError, match="2 weights are averaged, and there are 1 shares"):
        staged(sft=SFT, rl=RL | {"start": {"average": ["initial", {"stage": "sft"}], "weights": [1.0]}})
    with pytest.raises(ConfigError, match=r"sum to 1, found 0\.9"):
        staged(sft=SFT, rl=RL | {"start": {"average": ["initial", {"stage": "sft"}], "weights": [0.4, 0.5]}})
    with pytest.raises(ConfigError, match=r"expected initial, \{stage: NAME\}, \{run: FOLDER\} or \{average"):
        staged(sft=SFT, rl=RL | {"start": "sft"})


def test_a_recipe_without_starts_gains_no_line(tmp_path: Path) -> None:
    assert "start" not in staged(sft=SFT).to_yaml()
    made = staged(sft=SFT, rl=RL | {"start": {"average": ["initial", {"stage": "sft"}]}})
    assert Recipe.of_yaml(made.to_yaml()) == made
    (tmp_path / "recipe.yaml").write_text(made.to_yaml())
    assert recipes.load(tmp_path / "recipe.yaml") == made
