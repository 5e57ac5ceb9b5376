"""Policies that are networks of values: the loss of a step against the formula, and the cadence of the copy."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.methods.dqn import dqn
from polopt.network_training import NetworkTraining
from polopt.policies.head import HeadError
from polopt.policies.heads import head_of
from polopt.policies.network import NetworkPolicy

F64 = torch.float64


def transitions(rows: int = 9) -> Experience:
    draw = torch.Generator().manual_seed(0)
    ends = torch.randint(3, (rows, 1), generator=draw)
    return Experience(
        mask=torch.ones(rows, 1, dtype=torch.bool),
        reward=3 * torch.randn(rows, 1, generator=draw, dtype=F64),
        terminated=ends == 0,
        truncated=ends == 1,
        group=torch.arange(rows),
        extras={
            "observation": torch.randn(rows, 2, 3, generator=draw, dtype=F64),
            "action": torch.randint(4, (rows, 1), generator=draw),
            "discount": 0.9 ** torch.randint(1, 4, (rows, 1), generator=draw).to(F64),
        },
    )


def training(algorithm: Algorithm) -> NetworkTraining:
    policy = NetworkPolicy(observations=3, actions=4, head="action_values", hidden=(5,), normalise=True).double()
    assert policy.normaliser is not None
    policy.normaliser.observe(torch.randn(50, 3, generator=torch.Generator().manual_seed(1), dtype=F64) * 2 + 1)
    policy.normaliser.advance()
    draw = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=draw, dtype=F64))
    found = NetworkTraining(policy, algorithm, 1e-3, draw)
    for parameter in found.target_policy.parameters():
        parameter.add_(0.5 * torch.randn(parameter.shape, generator=draw, dtype=F64))
    return found


def q_of(policy: NetworkPolicy, state: torch.Tensor) -> torch.Tensor:
    assert policy.normaliser is not None
    x = ((state - policy.normaliser.shift) / policy.normaliser.scale).clamp(-10, 10)
    first, last = policy.actor[0], policy.actor[2]
    return torch.tanh(x @ first.weight.T + first.bias) @ last.weight.T + last.bias


@pytest.mark.parametrize("double", [False, True])
def test_the_loss_is_the_formula_and_its_gradient_that_of_the_logged_choice(double: bool) -> None:
    found, data = training(dqn(double=double)), transitions()
    objective = found.algorithm.objective
    loss = objective(data, found.evaluate(data, objective)).loss
    loss.backward()
    got = [p.grad.clone() for p in found.policy.actor.parameters()]
    state, after = data.extras["observation"].unbind(1)
    slow = q_of(found.target_policy, after)
    choice = (q_of(found.policy, after) if double else slow).argmax(1)
    value = torch.where(data.terminated[:, 0], 0, slow[torch.arange(9), choice])
    y = data.reward[:, 0] + data.extras["discount"][:, 0] * value
    q = q_of(found.policy, state)[torch.arange(9), data.extras["action"][:, 0]]
    expected = torch.nn.functional.smooth_l1_loss(q, y.detach())
    torch.testing.assert_close(loss, expected)
    for gradient, own in zip(got, torch.autograd.grad(expected, list(found.policy.actor.parameters())), strict=True):
        torch.testing.assert_close(gradient, own)
    assert all(p.grad is None for p in found.target_policy.parameters())


def test_the_copy_follows_in_every_third_minibatch() -> None:
    found = training(dqn(target_every=3))
    old = copy.deepcopy(found.target_policy.state_dict())
    for count in range(1, 7):
        found.begin_minibatch()
        found.step(transitions())
        with torch.no_grad():
            for parameter in found.policy.parameters():
                parameter.add_(0.01)
        found.move_targets()
        now = {n: v.clone() for n, v in found.target_policy.state_dict().items()}
        expected = found.policy.state_dict() if count % 3 == 0 else old
        assert all(torch.allclose(now[name], expected[name], rtol=1e-12) for name in now)
        old = now
    kept = found.state()
    assert int(kept["networks.count"]) == 6
    other = training(dqn(target_every=3))
    other.load(kept)
    assert other.count == 6
    assert all(torch.equal(v, other.target_policy.state_dict()[n]) for n, v in old.items())


def test_discounts_of_rows_and_a_discount_of_all_are_not_both_taken() -> None:
    found, data = training(dqn().but({"objective.target.gamma": 0.9})), transitions()
    objective = found.algorithm.objective
    with pytest.raises(ExperienceError, match="discounts of their own"):
        objective(data, found.evaluate(data, objective))


def test_the_largest_legal_value_is_taken() -> None:
    head: Any = head_of("action_values", 3, None, None)
    output = torch.tensor([[1.0, 3.0, 2.0], [0.5, -1.0, -2.0]])
    legal = torch.tensor([[True, False, True], [False, True, True]])
    action = head.sample(head.law(output, legal=legal), torch.Generator())
    assert action.action.tolist() == [2, 1]
    assert action.logp.tolist() == [0.0, 0.0]
    assert head.mode(head.law(output)).tolist() == [1, 0]
    with pytest.raises(HeadError, match="no closed form"):
        head.entropy(head.law(output))
    with pytest.raises(HeadError, match="does not fit the environment's actions"):
        head_of("action_values", None, [0.0], [1.0])
