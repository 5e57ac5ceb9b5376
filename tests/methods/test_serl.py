"""SERL's classifier and reward, from their formulas in float64."""

import numpy as np
import pytest
import torch
from torch.nn.functional import logsigmoid

from polopt.config import ConfigError
from polopt.evaluation import Evaluation
from polopt.methods.serl import SUCCESS, SuccessLoss, SuccessReward, serl
from polopt.sampling import transition_rows
from polopt.support import PLAIN
from polopt.training import recipe as recipes
from polopt.training.control.domain import ControlDomain
from polopt.training.control.recipe import ControlRecipe

NAME = SUCCESS.name.removeprefix("extras.")


def rows(groups: int = 1, count: int = 12):
    draw = torch.Generator().manual_seed(5)
    normal = lambda *shape: torch.randn(*shape, generator=draw, dtype=torch.float64)  # noqa: E731
    never = torch.zeros(count, dtype=torch.bool)
    columns = {"observation": normal(count, 2), "next_observation": normal(count, 2), "action": normal(count, 1)}
    columns |= {"reward": (torch.arange(count) % 4 < 2).double(), "logged": torch.arange(count) % 2 == 0}
    made = transition_rows({**columns, "terminated": never, "truncated": never}, PLAIN)
    evaluation = Evaluation(logp=-normal(count, 1).abs(), support=PLAIN, extras={NAME: normal(count, 1, 1)})
    return made.replace(group=torch.arange(count) * groups // count), evaluation


def test_the_reward_is_what_the_classifier_says():
    batch, evaluation = rows()
    odds = evaluation.extras[NAME][:, 0, 0]
    made = SuccessReward(threshold=0.6)(batch, evaluation, torch.Generator())
    assert torch.equal(made.reward[:, 0], (odds >= torch.tensor(0.6 / 0.4).log()).double())
    assert made.extras["succeeded"][:, 0].tolist() == [i % 4 == 0 for i in range(12)]


@pytest.mark.parametrize("groups", [1, 2])
def test_the_classifier_weighs_successes_and_failures_alike_in_each_group(groups):
    batch, evaluation = rows(groups)
    odds = evaluation.extras[NAME][:, 0, 0]
    batch = SuccessReward()(batch, evaluation, torch.Generator())
    expected = []
    for part in torch.arange(12).chunk(groups):
        good, bad = ([i for i in part.tolist() if i % 4 == 0], [i for i in part.tolist() if i % 2 == 1])
        cross = [-(0.85 * logsigmoid(x) + 0.15 * logsigmoid(-x)) for x in (odds[good], -odds[bad])]
        expected.append(sum(x.mean() for x in cross))
    loss = SuccessLoss(smoothing=0.3)(batch, evaluation)
    torch.testing.assert_close(loss.loss, sum(expected) / groups)
    bad = odds[1::2]
    assert loss.metrics["called_success/failure"] == (bad > 0).double().sum() / 12


def test_a_minibatch_without_successes_learns_from_failures_alone():
    batch, evaluation = rows()
    batch = SuccessReward()(batch.replace(reward=torch.zeros_like(batch.reward)), evaluation, torch.Generator())
    odds = evaluation.extras[NAME][1::2, 0, 0]
    expected = -(0.9 * logsigmoid(-odds) + 0.1 * logsigmoid(odds)).mean()
    torch.testing.assert_close(SuccessLoss()(batch, evaluation).loss, expected)


def test_a_minibatch_is_a_group():
    assert serl(batch=1024, updates=4).sampling.group == 256
    with pytest.raises(ValueError, match="threshold must be in"):
        serl(threshold=1.0)
    with pytest.raises(ValueError, match="smoothing must be in"):
        SuccessLoss(smoothing=1.0)


def test_a_log_without_successes_is_refused_at_the_door(tmp_path):
    count, draw = 300, np.random.default_rng(0)
    columns = {name: draw.normal(size=(count, 3)).astype(np.float32) for name in ("observation", "next_observation")}
    never = np.zeros(count, bool)
    columns |= {"action": np.zeros((count, 1), np.float32), "reward": -np.ones(count, np.float32)}
    np.savez(tmp_path / "log.npz", terminated=never, truncated=never, **columns)
    changes = {"transitions": str(tmp_path / "log.npz"), "stages.rl.method": {"name": "serl"}}
    recipe = ControlRecipe.require(recipes.load("pendulum", changes))
    with pytest.raises(ConfigError, match=r"none of its 300 rewards is above 0.*set the reward of the transitions"):
        ControlDomain(recipe)


def test_a_batch_of_one_kind_is_refused_at_the_door():
    changes = {"stages.rl.method": {"name": "serl"}, "stages.rl.but": {"sampling.logged": 0.0}}
    with pytest.raises(ConfigError, match=r"needs extras.logged.*set sampling.logged between 0 and 1"):
        ControlDomain(ControlRecipe.require(recipes.load("pendulum", changes)))
