"""Penalties on actions that are not logged, draws of actions and of heads, against formulas and integrals."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from small_actors import LinearGaussian, batch
from test_value_policy import q_of, transitions
from test_value_policy import training as value_training

from polopt.algorithm import Algorithm
from polopt.methods.bc import bc
from polopt.methods.cql import cql
from polopt.methods.discrete_cql import discrete_cql
from polopt.methods.rlpd import rlpd
from polopt.network_training import NetworkTraining
from polopt.networks import QNetwork, Space
from polopt.outputs import NetworkOutput, Proposal, output_of

F64 = torch.float64


def training(algorithm: Algorithm) -> NetworkTraining:
    found = NetworkTraining(LinearGaussian(), algorithm, 1e-3, torch.Generator().manual_seed(3))
    for module in (*found.modules.values(), *found.targets.values()):
        module.double()
    return found


@pytest.mark.parametrize("proposal", [Proposal(draws=10), Proposal(draws=3, of="uniform"), Proposal(of="every")])
@pytest.mark.parametrize("heads", [None, 2])
def test_names_of_draws_are_read_back(proposal: Proposal, heads: int | None) -> None:
    for given in (proposal, Proposal(draws=2, after=True)):
        output = NetworkOutput("critic", target=True, proposal=given, heads=heads)
        assert output_of(output.name) == output


def q_by_hand(module: Any, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """[..., H], each head as matrix products of its own."""
    x = torch.cat([observation, action], -1)
    weights = list(module.parameters())
    heads = []
    for h in range(2):
        inner = torch.relu(x @ weights[0][h] + weights[1][h])
        heads.append((inner @ weights[2][h] + weights[3][h])[..., 0])
    return torch.stack(heads, -1)


def test_the_penalty_is_the_formula_for_the_actions_that_were_drawn() -> None:
    found, data = training(cql(alpha=2.0, samples=4, hidden=(5,))), batch()
    objective: Any = found.specs["critic"].objective
    penalty = objective.regularise[0]
    state = data.extras["observation"][:, 0, None]
    critic, terms = found.modules["critic"], []
    needs = sorted({f"extras.network.action.{law.name}" for law in penalty._laws} | penalty.policy_outputs)
    evaluation = found._evaluator.evaluate(data, needs, logp=False)
    for law in penalty._laws:
        action = evaluation.extras[f"network.action.{law.name}"][:, 0]
        assert action.shape == (7, 4, 2)
        q = q_by_hand(critic, state.expand(-1, 4, -1), action)
        if law.of == "uniform":
            assert action.abs().max() <= 1
            logp = torch.full((7, 4), -2 * torch.tensor(2.0, dtype=F64).log())
        else:
            at = data.extras["observation"][:, 1 if law.after else 0]
            logp = found.policy.density((at @ found.policy.weight.T)[:, None], action)
        terms.append(q - logp[..., None])
    logged = q_by_hand(critic, state[:, 0], data.extras["action"][:, 0])
    expected = (torch.cat(terms, 1).logsumexp(1) - logged).sum(-1)
    torch.testing.assert_close(penalty(data, evaluation)[:, 0], expected)


def test_the_penalty_reaches_the_critic_and_not_the_policy() -> None:
    found = training(cql(hidden=(5,)))
    found.begin_minibatch()
    found.step(batch())
    assert all(p.grad is None for p in found.policy.parameters())
    with_penalty = {n: v.clone() for n, v in found.modules["critic"].state_dict().items()}
    other = training(cql(alpha=0.0, hidden=(5,)))
    other.step(batch())
    assert any(not torch.equal(v, other.modules["critic"].state_dict()[n]) for n, v in with_penalty.items())


def test_many_draws_are_the_integral_over_actions() -> None:
    """With one law each, of 3 N draws: log (1 / 3 N sum exp(Q - log q)) is log integral exp Q."""
    found, data = training(cql(samples=4000, hidden=(5,)).but({"networks.0.network.heads": 2})), batch(3)
    objective: Any = found.specs["critic"].objective
    penalty = objective.regularise[0]
    evaluation = found.evaluate(data, objective)
    law = penalty._laws[0]
    q = evaluation.extras[NetworkOutput("critic", proposal=law).name.removeprefix("extras.")][:, 0]
    estimate = (q + 2 * torch.tensor(2.0, dtype=F64).log()).logsumexp(1) - torch.tensor(4000.0, dtype=F64).log()
    grid = torch.linspace(-1, 1, 101, dtype=F64)
    actions = torch.cartesian_prod(grid, grid)
    state = data.extras["observation"][:, 0, None].expand(-1, len(actions), -1)
    values = q_by_hand(found.modules["critic"], state, actions.expand(3, -1, -1)).unflatten(1, (101, 101)).exp()
    exact = torch.trapezoid(torch.trapezoid(values, grid, dim=1), grid, dim=1).log()
    torch.testing.assert_close(estimate, exact, rtol=0, atol=0.03)


@pytest.mark.parametrize(("threshold", "sign"), [(-50.0, 1), (50.0, -1)])
def test_the_price_rises_above_the_threshold(threshold: float, sign: int) -> None:
    found = training(cql(threshold=threshold, hidden=(5,)))
    found.begin_minibatch()
    found.step(batch())
    assert float(next(found.modules["price"].parameters())) * sign > 0


def test_all_other_choices_are_pushed_down() -> None:
    found, data = value_training(discrete_cql(alpha=0.7)), transitions()
    objective = found.algorithm.objective
    loss = objective(data, found.evaluate(data, objective)).loss
    plain = objective.but(regularise=[])
    parent = plain(data, found.evaluate(data, plain)).loss
    q, choice = q_of(found.policy, data.extras["observation"][:, 0]), data.extras["action"]
    expected = parent + 0.7 * torch.nn.functional.cross_entropy(q, choice[:, 0])
    torch.testing.assert_close(loss, expected)


def test_a_subset_of_heads_is_drawn_for_each_minibatch() -> None:
    found, data = training(rlpd(hidden=(5,), heads=5)), batch()
    output = NetworkOutput("critic", target=True, heads=2)
    every = NetworkOutput("critic", target=True)
    seen = set()
    for _ in range(30):
        evaluation = found._evaluator.evaluate(data, {output.name, every.name}, logp=False)
        some, whole = (evaluation.extras[o.name.removeprefix("extras.")][:, 0] for o in (output, every))
        columns = [int((whole == some[:, i : i + 1]).all(0).nonzero()) for i in range(2)]
        assert columns[0] != columns[1]
        seen |= set(columns)
    assert seen == set(range(5))


def test_the_temperature_steps_with_the_policy() -> None:
    found = training(rlpd(hidden=(5,), updates=3))
    for _ in range(6):
        found.begin_minibatch()
        found.step(batch())
    counts = {name: int(stepper.state()["0.step"]) for name, stepper in found.steppers.items()}
    assert counts == {"critic": 6, "temperature": 2}


def test_each_head_has_a_layer_norm_of_its_own() -> None:
    module: Any = QNetwork(heads=3, hidden=(4, 4), layer_norm=True).build(
        Space(2, dimensions=1), torch.Generator().manual_seed(0)
    )
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    state, action = torch.randn(6, 2), torch.randn(6, 1)
    p = list(module.parameters())
    for h in range(3):
        x = torch.cat([state, action], -1)
        for layer in (0, 4):
            x = x @ p[layer][h] + p[layer + 1][h]
            x = torch.relu(torch.nn.functional.layer_norm(x, (4,), p[layer + 2][h, 0], p[layer + 3][h, 0]))
        torch.testing.assert_close(module(state, action)[:, h], (x @ p[8][h] + p[9][h])[:, 0])


def test_imitation_by_squares_needs_no_networks() -> None:
    found, data = training(bc(loss="squared")), batch()
    draws = copy.deepcopy(found._evaluator.generator)
    objective = found.algorithm.objective
    loss = objective(data, found.evaluate(data, objective)).loss
    action, _ = found.policy.propose(data.extras["observation"][:, 0], draws)
    torch.testing.assert_close(loss, torch.nn.functional.mse_loss(action, data.extras["action"][:, 0]))
