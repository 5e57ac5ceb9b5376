"""Critics and policies of several responses, against loops over decisions; and whole runs from a log of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rows_responses import responses_batch
from safetensors.torch import load_file
from tiny_runs import lines

import polopt as po
from polopt.config import ConfigError
from polopt.evaluation import Evaluation
from polopt.fields import ExperienceError
from polopt.objectives import ConstrainedChoiceWeight, ResponseAscent, ResponseRegression
from polopt.training import recipe as recipes
from polopt.training.control.recipe import ControlRecipe
from polopt.training.launch import train


def given(m: int = 3) -> tuple[Any, Evaluation, dict[str, torch.Tensor]]:
    batch = responses_batch(3, clean=True, m=m)
    extras = {k.removeprefix("extras."): v.detach() for k, v in batch.leaves.items() if k.startswith("extras.network")}
    zeros = torch.zeros_like(batch.mask, dtype=torch.float64)
    return batch.experience, Evaluation(logp=zeros, support=batch.experience.support, extras=extras), extras


def test_the_critics_loss_is_that_of_a_loop() -> None:
    experience, evaluation, extras = given()
    found = ResponseRegression(gamma=0.9, response_gamma=0.5)(experience, evaluation)
    names = ("critic", "critic.target.next", "response_policies.next", "action.next.policy")
    q, after, logits, choice = (extras[f"network.{name}"] for name in names)
    terms = []
    over = po.ops.per_decision_end(experience.terminated, experience.mask)
    reward = po.ops.per_decision_reward(experience.reward, experience.mask)
    for b, t in experience.mask.nonzero().tolist():
        chosen, total = int(experience.extras["action"][b, t]), 0.0
        for i in range(3):
            if i == 0:
                r, gamma, follows = reward[b, t], 0.9, after[b, t, 0, int(choice[b, t])]
            else:
                p = torch.exp(logits[b, t, i - 1]) / torch.exp(logits[b, t, i - 1]).sum()
                r, gamma, follows = experience.extras["responses"][b, t, i - 1], 0.5, (p * after[b, t, i]).sum()
            y = r if over[b, t] else r + gamma * follows
            total += float((y - q[b, t, i, chosen]) ** 2)
        terms.append(total)
    assert float(found.loss) == pytest.approx(sum(terms) / len(terms), rel=1e-9)


def test_the_policies_reach_the_softmax_of_their_values() -> None:
    """Of which the gradient of the loss is 0."""
    experience, evaluation, extras = given()
    logits = (extras["network.critic"][:, :, 1:] / 0.3).requires_grad_()
    extras = extras | {"network.response_policies": logits}
    ResponseAscent(temperature=0.3)(experience, dataclasses.replace(evaluation, extras=extras)).loss.backward()
    assert float(logits.grad.abs().max()) < 1e-12


def test_the_weight_is_a_ratio_with_mean_1_under_the_policy_that_logged() -> None:
    experience, evaluation, extras = given()
    part = ConstrainedChoiceWeight(multipliers=(0.5, 1.0), cap=1e9)
    total = 0.0
    for choice in range(4):
        chosen = torch.full_like(experience.extras["action"], choice)
        weight = part(experience.replace(extras=experience.extras | {"action": chosen}), evaluation)
        total = total + weight * extras["network.behaviour"][:, :, 0].softmax(-1)[..., choice]
    torch.testing.assert_close(total[experience.mask], torch.ones_like(total[experience.mask]))


def test_a_log_of_other_responses_is_refused() -> None:
    experience, evaluation, _ = given()
    experience = experience.replace(extras=experience.extras | {"responses": experience.extras["responses"][..., :1]})
    with pytest.raises(ExperienceError, match="the critic has 3 responses, and the batch 1 beside the reward"):
        ResponseRegression()(experience, evaluation)


def log(folder: Path, **changes: Any) -> str:
    draw = np.random.default_rng(0)
    columns = {"observation": draw.normal(size=(60, 4)), "next_observation": draw.normal(size=(60, 4))}
    columns |= {"action": draw.integers(2, size=60), "reward": draw.normal(size=60)}
    columns |= {"terminated": draw.random(60) < 0.1, "responses": draw.normal(size=(60, 2))} | changes
    np.savez(folder / "log.npz", **{name: value for name, value in columns.items() if value is not None})
    return str(folder / "log.npz")


def recipe(path: str, second: dict[str, Any] | None = None, **changes: Any) -> ControlRecipe:
    method = {"name": "tscac", "multipliers": [1.0, 0.5], "batch": 16, "hidden": [8]}
    one = {"method": method, "steps": 2, "rows": 2, "minibatches": 2}
    stages = {"responses": one, "main": one | {"networks": {"stage": "responses"}} | (second or {})}
    base = {"threads": 1, "policy.hidden": [8], "transitions": path, "stages": stages, "evaluation.problems": 2}
    return ControlRecipe.require(recipes.load("cartpole", base | {"evaluation.every": 0} | changes))


def test_the_policies_of_responses_stay_as_their_stage_left_them(tmp_path: Path) -> None:
    made = recipe(log(tmp_path), {"but": {"networks.1.frozen": True}})
    folder = train(made, tmp_path / "run").folder
    first, last = (load_file(folder / f"networks{name}.safetensors") for name in ("-responses", ""))
    same = {name: torch.equal(value, last[name]) for name, value in first.items()}
    assert all(same[name] for name in same if name.startswith("response_policies."))
    assert not all(same[name] for name in same if name.startswith("critic."))
    assert {"critic/value/2", "behaviour/loss"} <= lines(folder, "metrics")[-1].keys()


@pytest.mark.parametrize(
    ("columns", "changes", "sentence"),
    [
        ({"responses": None}, {}, "it reads several responses to each decision, which only a log has"),
        ({"responses": np.full((60, 2), np.nan)}, {}, "responses of row 0 of .* which is no finite number"),
        (
            {},
            {"environment.id": "Pendulum-v1"},
            "ChoiceNetwork has a number for each choice, and the policy's actions are",
        ),
    ],
)
def test_what_cannot_be_is_refused_at_the_door(
    columns: dict[str, Any], changes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        train(recipe(log(tmp_path, **columns), **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()
