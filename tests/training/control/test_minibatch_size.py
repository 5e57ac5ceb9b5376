"""Minibatches of a fixed size: as many as the batch has decisions for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from test_control_runs import SMALL

from polopt.algorithm import Algorithm
from polopt.bridges.verl_config import HOST
from polopt.config import ConfigError
from polopt.methods.ppo import control_ppo, ppo
from polopt.methods.ppo_outer_scaling import ppo_outer_scaling, resting_excess
from polopt.sampling import Fragments, Memory
from polopt.training import recipe as recipes
from polopt.training.flat_updates import FlatUpdates
from polopt.training.launch import train

CONTROL = {
    "sampling": {"part": "sampling.Fragments", "steps": 16},
    "reward": {"part": "rewards.EnvironmentReward"},
    "credit.credit.cut": "bootstrap",
}
PPO = {"gamma": 0.98, "lam": 0.8, "entropy": 0.0}


def weights(folder: Path, method: dict[str, object], **stage: object) -> dict[str, torch.Tensor]:
    changes = {**SMALL, "stages.rl.but": {"sampling.steps": 16}, **{f"stages.rl.{k}": v for k, v in stage.items()}}
    run = train(recipes.load("cartpole", changes, method=method), folder)
    return load_file(run.folder / "policy" / "model.safetensors")


def test_more_copies_have_more_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the same number of copies has those of PPO, bit for bit."""
    counts, original = list[int](), FlatUpdates.run

    def run(self: FlatUpdates, experience: object, epochs: int, minibatches: int, *others: object) -> object:
        counts.append(minibatches)
        return original(self, experience, epochs, minibatches, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(FlatUpdates, "run", run)
    sized = {"name": "ppo-outer-scaling", "minibatch": 32, **PPO}
    plain = {"name": "ppo", "kl": 0.0, "value_clip": None, **PPO}
    found = weights(tmp_path / "sized", sized, rows=8, minibatches=1)
    assert {*counts} == {4}
    ours = weights(tmp_path / "plain", plain, rows=8, minibatches=4, but=CONTROL)
    assert found.keys() == ours.keys()
    assert all(torch.equal(found[name], ours[name]) for name in found)
    counts.clear()
    weights(tmp_path / "more", sized, rows=16, minibatches=1)
    assert {*counts} == {8}


def test_the_number_of_minibatches() -> None:
    made = ppo_outer_scaling(minibatch=64)
    assert [made.minibatches(n, 9) for n in (1, 64, 95, 97, 127, 6400)] == [1, 1, 1, 2, 2, 100]
    assert control_ppo(gamma=1, lam=1, clip=1, entropy=0, steps=1).minibatches(6400, 9) == 9
    with pytest.raises(ValueError, match="minibatch must be >= 1, found 0"):
        Algorithm(minibatch=0)


def test_a_fixed_number_beside_a_fixed_size_is_refused() -> None:
    changes = {"stages.rl.minibatches": 4, "stages.rl.but": {}}
    with pytest.raises(ConfigError, match="minibatches = 4, and the method has minibatches of 256 decisions"):
        _ = recipes.load("cartpole", changes, method="ppo-outer-scaling").algorithms


def test_trainers_that_divide_batches_themselves_refuse_it() -> None:
    made = ppo(kl=0.0)
    (new,) = {*HOST.refusals(made.but(minibatch=64))} - {*HOST.refusals(made)}
    assert "its minibatches have 64 decisions, and verl divides batches itself; set minibatch to null" in new


def test_the_excess_where_steps_rest() -> None:
    step, h, variance = 0.3, 2.0, 0.7
    # The variance of x is a fixed point: v = (1 - step h)^2 v + step^2 variance.
    v = step**2 * variance / (1 - (1 - step * h) ** 2)
    assert resting_excess(step, h, variance) == pytest.approx(h * v / 2)
    for wrong in ((1.0, 2.0, 1.0), (0.0, 1.0, 1.0), (1.0, 1.0, -1.0)):
        with pytest.raises(ValueError, match="resting_excess: need positive numbers"):
            resting_excess(*wrong)


def test_one_environment_has_minibatches_of_its_decisions() -> None:
    """With an objective that binds none; else its fragment stays whole."""
    one = {**SMALL, "stages.rl.rows": 1, "stages.rl.minibatches": 16}
    assert recipes.load("cartpole", one).stages["rl"].algorithm("stages.rl").sampling.divisible_row == 16
    with pytest.raises(ConfigError, match="minibatches = 17, and the batch has 16 decisions or groups; set it to 16"):
        recipes.load("cartpole", {**one, "stages.rl.minibatches": 17}).stages["rl"].algorithm("stages.rl")
    bound = {**one, "stages.rl.but": {**CONTROL, "objective.ratio": {"part": "objectives.SequenceRatio"}}}
    with pytest.raises(ConfigError, match="minibatches = 16, and the batch has 1 groups, which stay whole"):
        recipes.load("cartpole", bound).stages["rl"].algorithm("stages.rl")
    with pytest.raises(ConfigError, match="minibatches = 16, and the batch has 1 groups, which stay whole"):
        recipes.load("cartpole", {**one, "stages.rl.micro_rows": 1}).stages["rl"].algorithm("stages.rl")
    assert Fragments(steps=9, policy_input=Memory()).divisible_row == 1
