"""What the critic learns: the credit's own targets, written once for each batch."""

from __future__ import annotations

from typing import Any

import loops
import pytest
import torch
from tiny_runs import recipe

import polopt as po
from polopt.checks.sample_batches import random_batch
from polopt.config import ConfigError
from polopt.credit import (
    GAE,
    ClippedAdvantage,
    Credit,
    GroupMean,
    ModulatedAdvantage,
    RelativeAdvantage,
    WeightedAdvantage,
    WeightedSum,
    WhitenedAdvantage,
)
from polopt.methods.copo import MultiAdvantage
from polopt.methods.empg import CentredAdvantage
from polopt.methods.gtalign import StandardisedReturns
from polopt.methods.hapo import BoundedAdvantage
from polopt.methods.t_ppo import DecoupledTargets
from polopt.objectives import Surrogate, ValueLoss
from polopt.training.launch import open_domain
from polopt.training.process_group import ProcessGroup

PLAIN = GAE(gamma=0.9, lam=0.8)
APART = DecoupledTargets(credit=GAE(lam=0.5), target=PLAIN)


def batch(seed: int = 0) -> po.Experience:
    return random_batch(seed, clean=True).experience.replace(value_target=None)


def lambda_returns(experience: po.Experience, gamma: float, lam: float) -> torch.Tensor:
    """A + V, by loops over plain numbers."""
    expected = torch.zeros_like(experience.value)
    for i, row in enumerate(loops.gae(experience, gamma, lam)):
        for t, advantage in row.items():
            expected[i, t] = advantage + experience.value[i, t].item()
    return expected


def agrees(found: Any, expected: torch.Tensor, mask: torch.Tensor) -> None:
    torch.testing.assert_close(found[mask], expected[mask], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("lam", [0.5, 0.95])
def test_one_setting_moves_the_advantage_and_the_critics_target(seed: int, lam: float) -> None:
    """The gradient of the critic's loss under a lambda that was changed in the credit alone."""
    sample = random_batch(seed, clean=True)
    algorithm = po.method("ppo", kl=0.0, gamma=0.9, value_clip=None).but(
        {"credit.credit.lam": lam, "credit.credit.cut": "bootstrap", "reward": po.rewards.EnvironmentReward()}
    )
    e = algorithm.with_advantages(batch(seed))
    expected = lambda_returns(e, 0.9, lam)
    agrees(e.value_target, expected, e.mask)
    now = sample.leaves["value"]
    loss = algorithm.objective(e.replace(advantage=torch.zeros_like(e.value)), sample.evaluation()).loss
    slope = torch.where(e.mask, 0.5 * (now - expected), 0).detach() / e.mask.sum()
    torch.testing.assert_close(torch.autograd.grad(loss, now)[0], slope, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "credit",
    [
        WhitenedAdvantage(credit=PLAIN),
        ClippedAdvantage(credit=WhitenedAdvantage(credit=PLAIN), limit=0.1),
        CentredAdvantage(credit=PLAIN),
        ModulatedAdvantage(credit=PLAIN),
        BoundedAdvantage(credit=RelativeAdvantage(), otherwise=PLAIN),
        WeightedSum(
            shares=[WeightedAdvantage(credit=PLAIN, weight=0.3), WeightedAdvantage(credit=RelativeAdvantage())]
        ),
        MultiAdvantage(shares=[WeightedAdvantage(credit=PLAIN)]),
        WhitenedAdvantage(credit=APART),
    ],
    ids=lambda credit: type(credit).__name__,
)
def test_a_credit_around_another_leaves_its_targets_alone(credit: Credit) -> None:
    e = batch(3)
    found = credit.credited(e)
    agrees(found.value_target, lambda_returns(e, 0.9, 0.8), e.mask)
    agrees(found.advantage, credit(e), e.mask)


def test_two_credits_with_targets_have_none_together() -> None:
    shares = [WeightedAdvantage(credit=GAE(lam=lam)) for lam in (0.5, 0.9)]
    e = WeightedSum(shares=shares).credited(batch())
    assert e.value_target is None
    with pytest.raises(
        po.ExperienceError, match=r"ValueLoss needs experience.value_target .* take one credit that has"
    ):
        ValueLoss()(e, random_batch(0, clean=True).evaluation())
    one = DecoupledTargets(credit=WeightedSum(shares=shares), target=PLAIN)
    agrees(one.credited(e).value_target, lambda_returns(e, 0.9, 0.8), e.mask)
    with pytest.raises(ValueError, match="target must have targets for a critic, found credit"):
        DecoupledTargets(credit=PLAIN, target=RelativeAdvantage())


def test_two_lambdas() -> None:
    e = batch(1)
    found = APART.credited(e)
    agrees(found.advantage, lambda_returns(e, 1.0, 0.5) - e.value, e.mask)
    agrees(found.value_target, lambda_returns(e, 0.9, 0.8), e.mask)


@pytest.mark.parametrize("outside", [False, True])
def test_a_critic_learns_the_units_in_which_it_is_used(outside: bool) -> None:
    """Returns in units of their kind: the targets are made of the same, wherever the transform stands."""
    transform = StandardisedReturns(credit=WhitenedAdvantage(credit=PLAIN) if outside else PLAIN)
    e = batch()
    worth = transform.worth(e.returns(), e)
    found = (transform if outside else WhitenedAdvantage(credit=transform)).credited(e)
    agrees(found.value_target, lambda_returns(e.replace(reward=worth), 0.9, 0.8), e.mask)


def test_demonstrated_rows_are_predicted_from_what_they_were_paid() -> None:
    e, shown = batch(), torch.zeros(9, dtype=torch.bool)
    shown[[1, 4]] = True
    e = e.replace(extras={"is_demonstration": shown})
    algorithm = po.Algorithm(credit=PLAIN, objective=Surrogate(regularise=[ValueLoss()]))
    found, expected = algorithm.with_advantages(e), lambda_returns(e.replace(reward=e.outcome), 0.9, 0.8)
    agrees(found.value_target, expected, e.mask)
    alone = algorithm.with_advantages(e[shown])
    agrees(alone.value_target, expected[shown], e.mask[shown])


def test_a_critic_without_targets_is_refused_before_anything_is_made() -> None:
    stages = {"rl": {"method": "grpo", "but": {"objective.regularise": [{"part": "objectives.ValueLoss"}]}, "steps": 1}}
    made = recipe(stages={"rl": {**stages["rl"], "rows": 8, "group": 4}})
    with (
        pytest.raises(ConfigError, match=r"ValueLoss needs value_target, .*: \{part: credit.GAE, cut: zero\}"),
        open_domain(made, ProcessGroup(), None),
    ):
        pass


def test_a_group_baseline_has_no_targets() -> None:
    assert RelativeAdvantage(baseline=GroupMean()).credited(batch()).value_target is None
