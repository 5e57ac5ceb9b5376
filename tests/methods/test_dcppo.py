"""Rewards from choices, against SciPy's optimiser, plain value iteration and closed forms."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.optimize
import torch

import polopt as po
from polopt.problems import ChoiceError, OfflineChoices, find, human_choices, offline_choices
from polopt.solvers import BellmanRegression, ChoiceLikelihood, ChoicePlanner, PessimisticValueIteration


def fitted(problem: OfflineChoices, likelihood: ChoiceLikelihood, steps: int = 20) -> torch.Tensor:
    theta = torch.zeros(problem.horizon, problem.features.shape[-1], dtype=torch.double)
    for _ in range(steps):
        theta = likelihood(problem, theta)
    return theta


def with_features(problem: OfflineChoices, size: int) -> OfflineChoices:
    g = torch.Generator().manual_seed(1)
    return dataclasses.replace(problem, features=torch.randn(*problem.reward.shape, size, generator=g).double())


def test_the_likelihood_is_that_of_an_optimiser() -> None:
    problem = with_features(offline_choices(trajectories=60, states=3, horizon=2), 4)
    theta = fitted(problem, ChoiceLikelihood(penalty=0.5))
    phi, counts = problem.features.numpy(), problem.counts.sum(-1).numpy()
    for h in range(2):

        def loss(w: np.ndarray, h: int = h) -> float:
            logits = phi @ w
            log = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
            return float(-(counts[h] * log).sum() + 0.25 * (w**2).sum())

        found = scipy.optimize.minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-9})
        np.testing.assert_allclose(theta[h].numpy(), found.x, atol=1e-5)


def test_one_step_and_two_actions_are_a_logistic_model() -> None:
    """The reward of the action that is not the anchor is the log-odds of choosing it."""
    counts = torch.tensor([[[[30.0], [10.0]]]], dtype=torch.double)
    eye = torch.eye(2, dtype=torch.double)[None]
    problem = OfflineChoices(
        counts, eye, 0.9, 0, torch.ones(1, 2, 1).double(), torch.zeros(1, 2).double(), torch.ones(1).double()
    )
    solver = po.solver("dcppo", ridge=1e-9, penalty=1e-9)
    assert isinstance(solver, ChoicePlanner)
    state = solver.begin(problem)
    for _ in range(15):
        state = solver.iterate(problem, state)
    reward = solver.estimates(problem, state).reward[0, 0]
    torch.testing.assert_close(reward, torch.tensor([0.0, np.log(1 / 3)], dtype=torch.double), rtol=0, atol=1e-6)


def test_a_human_choice_is_the_softmax_of_its_values() -> None:
    problem = offline_choices(trajectories=0)
    for kind in ("mean", "logsumexp"):
        choices = human_choices(problem.transitions, problem.reward, 3, 0.7, kind)
        torch.testing.assert_close(choices[2], problem.reward.softmax(-1))
        last = problem.reward.exp().sum(-1).log() if kind == "logsumexp" else (choices[2] * problem.reward).sum(-1)
        second = (problem.reward + 0.7 * problem.transitions @ last).softmax(-1)
        torch.testing.assert_close(choices[1], second)


def test_plans_without_pessimism_are_value_iteration() -> None:
    problem = offline_choices(trajectories=0, size=1.0)
    reward = problem.reward.expand(4, -1, -1)
    policy, width = PessimisticValueIteration(beta=0.0, ridge=1e-12)(problem, reward)
    assert (width == 0).all()
    assert problem.value(policy) == pytest.approx(problem.best(), abs=1e-9)
    # The best value by an enumeration of the first decision: no policy is better.
    g = torch.Generator().manual_seed(0)
    for _ in range(50):
        other = torch.randn(4, 5, 3, generator=g, dtype=torch.double).mul(3).softmax(-1)
        assert problem.value(other) <= problem.best() + 1e-12
    rewards = problem.measure(policy)
    assert list(rewards) == ["suboptimality", "value"]


def test_wide_pessimism_follows_the_visits() -> None:
    problem = offline_choices(trajectories=300)
    reward = torch.zeros(4, 5, 3, dtype=torch.double)
    policy, _ = PessimisticValueIteration(beta=1.0)(problem, reward)
    visits = problem.counts[3].sum(-1)
    assert torch.equal(policy[3].argmax(-1)[visits.sum(-1) > 0], visits.argmax(-1)[visits.sum(-1) > 0])


def test_linear_features_recover_a_linear_reward() -> None:
    """One state: features of the actions, of which the anchor's is 0, and a reward that is linear in them."""
    g = torch.Generator().manual_seed(2)
    phi = torch.randn(1, 5, 2, generator=g, dtype=torch.double)
    phi[:, 0] = 0
    reward = phi @ torch.tensor([0.8, -0.5], dtype=torch.double)
    choices = human_choices(torch.ones(1, 5, 1).double(), reward, 2, 0.6)
    problem = OfflineChoices(
        choices[..., None], phi, 0.6, 0, torch.ones(1, 5, 1).double(), reward, torch.ones(1).double()
    )
    theta = fitted(problem, ChoiceLikelihood(penalty=1e-10))
    torch.testing.assert_close(problem.features @ theta[1], reward, rtol=0, atol=1e-6)
    _, found = BellmanRegression(ridge=1e-10)(problem, theta)
    torch.testing.assert_close(found[1], reward, rtol=0, atol=1e-6)


def test_counts_are_those_of_the_trajectories() -> None:
    problem = offline_choices(trajectories=70)
    assert problem.counts.sum((1, 2, 3)).tolist() == [70.0] * 4
    torch.testing.assert_close(problem.counts[0].sum((0, 1)), problem.counts[1].sum((1, 2)))  # next states go on
    assert offline_choices(trajectories=0).counts.sum((1, 2, 3)).tolist() == pytest.approx([1.0] * 4)
    assert set(problem.table(torch.full((4, 5, 3), 1 / 3))["step 3, state 4"]) == {"0", "1", "2"}


def test_bad_input_is_named() -> None:
    problem = find({"name": "offline-choices", "trajectories": 5})
    assert isinstance(problem, OfflineChoices)
    with pytest.raises(ChoiceError, match="reward of the anchor must be 0"):
        dataclasses.replace(problem, anchor=1)
    with pytest.raises(ChoiceError, match="an anchor among 3 actions"):
        dataclasses.replace(problem, anchor=3)
    with pytest.raises(ChoiceError, match=r"needs counts \[H, S, A, S\]"):
        dataclasses.replace(problem, counts=problem.counts[..., :2])
    with pytest.raises(ChoiceError, match="trajectories >= 0"):
        offline_choices(trajectories=-1)
    for settings in ({"beta": -1.0}, {"ridge": 0.0}, {"penalty": 0.0}, {"bound": 0.0}):
        with pytest.raises(ValueError, match=next(iter(settings))):
            po.solver("dcppo", **settings)
