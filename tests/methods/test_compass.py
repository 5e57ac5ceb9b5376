"""COMPASS's stages: the loss of the generalist against torch's divergence, and recipes that run one after another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rows_objectives import distilled_batch
from safetensors.torch import load_file
from tiny_runs import lines
from torch.distributions import Normal, kl_divergence

import polopt as po
from polopt.config import ConfigError
from polopt.evaluation import Evaluation
from polopt.fields import ExperienceError
from polopt.lab.stepping import policy_for, recorded
from polopt.objectives import GaussianDistillation
from polopt.policies.network import NetworkPolicy
from polopt.training import recipe as recipes
from polopt.training.launch import train
from polopt.worlds.control import EmbodiedNavigation, GoToGoal


def given() -> tuple[Any, Evaluation]:
    batch = distilled_batch(3, clean=True)
    return batch.experience, batch.evaluation()


@pytest.mark.parametrize("dimensions", [None, (2, 0)])
def test_the_loss_is_torchs_divergence(dimensions: tuple[int, ...] | None) -> None:
    experience, evaluation = given()
    teacher = Normal(experience.extras["teacher_mean"], experience.extras["teacher_log_std"].exp())
    terms = kl_divergence(teacher, Normal(evaluation.extras["mean"], evaluation.extras["log_std"].exp()))
    kept = terms[..., [0, 1, 2]] if dimensions is None else terms[..., list(dimensions)]
    expected = kept.mean(-1)[experience.mask].mean()
    found = GaussianDistillation(dimensions=dimensions)(experience, evaluation)
    torch.testing.assert_close(found.loss, expected, rtol=1e-12, atol=0)
    leaf = evaluation.extras["log_std"]
    (own_slope,) = torch.autograd.grad(found.loss, leaf, retain_graph=True)
    torch.testing.assert_close(own_slope, torch.autograd.grad(expected, leaf)[0], rtol=1e-9, atol=1e-12)


def test_squares_are_of_the_means_alone() -> None:
    experience, evaluation = given()
    found = GaussianDistillation(divergence="squared")(experience, evaluation)
    gap = (experience.extras["teacher_mean"] - evaluation.extras["mean"]).square().mean(-1)
    torch.testing.assert_close(found.loss, gap[experience.mask].mean(), rtol=1e-12, atol=0)


def test_teachers_of_other_actions_are_refused() -> None:
    experience, evaluation = given()
    less = experience.replace(
        extras=experience.extras | {"teacher_mean": experience.extras["teacher_mean"][..., :2].clone()}
    )
    with pytest.raises(ExperienceError, match="must have the shape of the policy's"):
        GaussianDistillation()(less, evaluation)
    with pytest.raises(ValueError, match="actions have 3 dimensions"):
        GaussianDistillation(dimensions=(3,))(experience, evaluation)
    with pytest.raises(ValueError, match="dimensions must be numbers >= 0 or None"):
        GaussianDistillation(dimensions=())


def test_a_stage_is_one_of_three() -> None:
    with pytest.raises(ValueError, match="stage must be 1, 2 or 3, found 4"):
        po.method("compass", stage=4)
    parent = po.method("ppo", kl=0.0, gamma=0.99, entropy=0.01)
    changed = {path for path, *_ in po.diff(parent, po.method("compass"))}
    assert changed == {"sampling", "reward", "credit.credit.cut"}


def changes(stage: int, **settings: Any) -> dict[str, Any]:
    found = {
        "environment": {"id": "polopt/EmbodiedNavigation-v0", "settings": {"embodiment": "heavy", "horizon": 10}},
        "policy": {"hidden": [8]},
        "stages": {
            "only": {
                "method": {"name": "compass", "stage": stage, "batch": 16, "steps": 4},
                "steps": 2,
                "rows": 4,
                "minibatches": 2,
            }
        },
        "evaluation": {"problems": 4, "quick": 2},
    }
    return found | settings


def run(folder: Path, stage: int, **settings: Any) -> Path:
    train(recipes.recipe_of({"kind": "control", **changes(stage, **settings)}), folder)
    return folder


def test_three_runs_follow_each_other(tmp_path: Path) -> None:
    """Each begins with what the one before has left; the base's weights stay as they were."""
    log = recorded(EmbodiedNavigation(4, horizon=10), GoToGoal(), steps=10, seed=0)
    np.savez(tmp_path / "expert.npz", **{name: value.numpy() for name, value in log.items()})
    first = run(tmp_path / "first", 1, transitions=str(tmp_path / "expert.npz"))
    second = run(tmp_path / "second", 2, policy={"base": str(first)})
    weights, base = (load_file(folder / "policy" / "model.safetensors") for folder in (second, first))
    actor = {name: value for name, value in base.items() if name.startswith("actor.")}
    assert actor
    assert all(torch.equal(value, weights[f"actor.base.{name[6:]}"]) for name, value in actor.items())
    assert any(float(weights[f"actor.residual.{n}.bias"].abs().max()) > 0 for n in (0, 2))
    specialist = NetworkPolicy.load(second / "policy")
    taught = recorded(EmbodiedNavigation(4, embodiment="heavy", horizon=10), specialist, steps=10, seed=1)
    np.savez(tmp_path / "taught.npz", **{name: value.numpy() for name, value in taught.items()})
    third = run(tmp_path / "third", 3, transitions=str(tmp_path / "taught.npz"))
    assert all("distillation/mean_error" in line for line in lines(third, "metrics.jsonl") if "loss" in line)


def test_a_base_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no policy in"):
        run(tmp_path / "a", 2, policy={"base": str(tmp_path / "nothing")})
    policy_for(EmbodiedNavigation(1, shown=True), seed=0, hidden=(4,)).save(tmp_path / "other" / "policy")
    with pytest.raises(ConfigError, match="observations must be 4, as the environment's, found 7"):
        run(tmp_path / "b", 2, policy={"base": str(tmp_path / "other")})
    log = recorded(EmbodiedNavigation(4, horizon=10), GoToGoal(), steps=10, seed=0)
    np.savez(tmp_path / "expert.npz", **{name: value.numpy() for name, value in log.items()})
    with pytest.raises(ConfigError, match="means of a teacher's normal distributions, which only a log has"):
        run(tmp_path / "c", 3, transitions=str(tmp_path / "expert.npz"))
