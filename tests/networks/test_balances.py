"""Policies for every balance, and the model that chooses one by state."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab.transitions import learned_from, policy_for
from polopt.methods.famo2o import BalanceAscent, DrawnBalance, famo2o
from polopt.methods.iql import iql
from polopt.network_training import NetworkTraining
from polopt.networks import BalanceActor, BalanceFamily, Space
from polopt.objectives import NetworkAdvantageWeight
from polopt.outputs import NetworkOutput, Proposal, output_of
from polopt.policies import balanced
from polopt.policies.network import NetworkPolicy
from polopt.sampling import transition_rows

DOUBLE = torch.float64


def policy_of(dimensions: int = 2, *, normalise: bool = False) -> NetworkPolicy:
    made = NetworkPolicy(
        observations=3,
        dimensions=dimensions,
        head="gaussian",
        low=[-2.0] * dimensions,
        high=[1.0] * dimensions,
        normalise=normalise,
        trunk=BalanceFamily(low=0.5, high=4.0, width=4, base=100.0, hidden=(7,)),
    )
    draw = torch.Generator().manual_seed(0)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.7, generator=draw)
    return made.to(DOUBLE)


def actor_of(policy: NetworkPolicy) -> BalanceActor:
    assert isinstance(policy.actor, BalanceActor)
    return policy.actor


def two_layers(policy: NetworkPolicy, name: str, read: Tensor) -> Tensor:
    weights = {key: value.detach() for key, value in policy.actor.named_parameters()}
    hidden = (read @ weights[f"{name}.0.weight"].T + weights[f"{name}.0.bias"]).relu()
    return hidden @ weights[f"{name}.2.weight"].T + weights[f"{name}.2.bias"]


def log_of(count: int) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(3)
    observation, action = torch.randn(count, 3, generator=draw), torch.rand(count, 2, generator=draw) - 0.5
    return {
        "observation": observation,
        "next_observation": observation + 0.1,
        "action": action,
        "reward": torch.randn(count, generator=draw),
        "terminated": torch.rand(count, generator=draw) < 0.3,
        "truncated": torch.zeros(count, dtype=torch.bool),
    }


def rows_of(count: int, policy: NetworkPolicy) -> Experience:
    return transition_rows(log_of(count), policy.head.support)


def test_an_embedding_is_sines_and_cosines_by_turns() -> None:
    actor = actor_of(policy_of())
    found = actor.embedded(torch.tensor([[[1.5]], [[4.0]]], dtype=DOUBLE))
    for i, beta in enumerate((1.5, 4.0)):
        expected = [f(beta / 100.0 ** (2 * k / 4)) for k in range(2) for f in (math.sin, math.cos)]
        torch.testing.assert_close(found[i, 0], torch.tensor(expected, dtype=DOUBLE), atol=1e-7, rtol=0)


def test_it_acts_at_the_most_likely_balance_unless_one_is_given() -> None:
    policy, seen = policy_of(), torch.randn(5, 3, dtype=DOUBLE)
    actor = actor_of(policy)
    mode = 0.5 + 3.5 * (two_layers(policy, "chooser", seen).tanh() + 1) / 2
    expected = two_layers(policy, "family", torch.cat([seen, actor.embedded(mode)], -1))
    torch.testing.assert_close(policy.act(seen, torch.Generator(), greedy=True).action, expected)
    given = torch.full((5, 1), 2.5, dtype=DOUBLE)
    state = policy.state_of(seen, {"balance": given})
    at = two_layers(policy, "family", torch.cat([seen, actor.embedded(given)], -1))
    torch.testing.assert_close(policy.law(state)[0], at)
    assert not torch.allclose(at, expected)


def test_acting_has_no_gradient_in_the_choice() -> None:
    policy = policy_of()
    policy.law(torch.randn(5, 3, dtype=DOUBLE))[0].sum().backward()
    assert all(parameter.grad is None for parameter in actor_of(policy).chooser.parameters())
    assert all(parameter.grad is not None for parameter in actor_of(policy).family.parameters())


def test_a_choice_is_a_squashed_normal_with_its_density_of_scaled_balances() -> None:
    policy, seen = policy_of(), torch.randn(6, 3, dtype=DOUBLE)
    found = balanced.choose(policy, seen, torch.Generator().manual_seed(4))
    noise = torch.randn(6, 1, generator=torch.Generator().manual_seed(4)).to(DOUBLE)
    std = actor_of(policy).log_std.detach().exp()
    u = two_layers(policy, "chooser", seen) + std * noise
    torch.testing.assert_close(found.action, 0.5 + 3.5 * (u.tanh() + 1) / 2)
    density = -(noise.square()) / 2 - std.log() - math.log(2 * math.pi) / 2 - (1 - u.tanh().square()).log()
    torch.testing.assert_close(found.logp, density[:, 0])


def test_a_proposal_moves_the_choice_alone_by_the_value_of_its_action() -> None:
    """The gradient of log pi_b - Q, of central differences in each parameter of the model of balances."""
    policy, seen = policy_of(), torch.randn(6, 3, dtype=DOUBLE)

    def loss() -> Tensor:
        action, logp = balanced.propose(policy, seen, torch.Generator().manual_seed(5))
        return (0.3 * logp - (action - 0.2).square().sum(-1).neg()).mean()

    loss().backward()
    actor = actor_of(policy)
    assert policy.log_std is not None
    assert policy.log_std.grad is None
    assert all(parameter.grad is None for parameter in actor.family.parameters())
    for parameter in (*actor.chooser.parameters(), actor.log_std):
        assert parameter.grad is not None
        for place in range(min(3, parameter.numel())):
            ends = []
            for h in (1e-6, -1e-6):
                with torch.no_grad():
                    parameter.view(-1)[place] += h
                    ends.append(loss())
                    parameter.view(-1)[place] -= h
            assert float(ends[0] - ends[1]) / 2e-6 == pytest.approx(float(parameter.grad.view(-1)[place]), abs=1e-7)


def test_the_loss_at_one_balance_is_that_of_iql() -> None:
    """With every balance at 3 and a family that reads none of it, the policy's loss has IQL's value and gradient."""
    made, parent = famo2o(hidden=(7,)), iql(beta=3.0, expectile=0.8, hidden=(7,))
    log = log_of(8)
    own, other = (policy_for(log, "gaussian", 0, algorithm, (7,)) for algorithm in (made, parent))
    actor = actor_of(own)
    with torch.no_grad():
        actor.family[0].weight[:, 3:] = 0.0  # type: ignore[index]
        for i in (0, 2):
            actor.family[i].bias.uniform_(-1, 1)  # type: ignore[index]
            other.actor[i].weight.copy_(actor.family[i].weight[:, : 3 if i == 0 else None])  # type: ignore[index]
            other.actor[i].bias.copy_(actor.family[i].bias)  # type: ignore[index]
    rows = rows_of(8, own)
    at_three = rows.replace(extras={**rows.extras, "balance": torch.full((8, 1, 1), 3.0)})
    training = NetworkTraining(own, made, 1e-3, torch.Generator().manual_seed(1))
    same = NetworkTraining(other, parent, 1e-3, torch.Generator().manual_seed(1))
    same.begin({key: value for key, value in training.weights().items() if not key.startswith("temperature")})
    imitation = made.objective.routes[0].objective  # type: ignore[attr-defined]
    at_three, rows = (parent.with_advantages(x.replace(reward=x.reward)) for x in (at_three, rows))
    losses = (
        imitation(at_three, training.evaluate(at_three, imitation)).loss,
        parent.objective(rows, same.evaluate(rows, parent.objective)).loss,
    )
    torch.testing.assert_close(*losses)
    for loss in losses:
        loss.backward()
    for i in (0, 2):
        gradient = actor.family[i].weight.grad[:, : 3 if i == 0 else None]  # type: ignore[index]
        torch.testing.assert_close(gradient, other.actor[i].weight.grad)  # type: ignore[index]
    assert all(parameter.grad is None for parameter in actor.chooser.parameters())


def test_a_weight_reads_the_balance_of_its_decision() -> None:
    weight = NetworkAdvantageWeight(beta="balance", cap=5.0)
    assert weight.reads == {"extras.balance"}
    rows = rows_of(3, policy_of())
    rows = rows.replace(extras={**rows.extras, "balance": torch.tensor([[[0.0]], [[1.0]], [[9.0]]])})
    outputs = {"network.critic.target": torch.tensor([[[2.0, 1.5]]] * 3), "network.value": torch.ones(3, 1)}
    found = weight(rows, Evaluation(logp=torch.zeros(3, 1), extras=outputs))
    torch.testing.assert_close(found, torch.tensor([[1.0], [math.exp(0.5)], [5.0]]))


@pytest.mark.parametrize("chosen", [False, True])
def test_drawn_balances_are_uniform_or_chosen(chosen: bool) -> None:
    policy = policy_of().float()
    rows = rows_of(4000, policy)
    part = DrawnBalance(chosen=chosen, low=0.5, high=4.0)
    made = famo2o(low=0.5, high=4.0, hidden=(7,)).but(relabel=[part])
    found = NetworkTraining(policy, made, 1e-3, torch.Generator().manual_seed(2)).relabelled(rows)
    balance = found.extras["balance"]
    assert balance.shape == (4000, 1, 1)
    assert 0.5 <= float(balance.min()) <= float(balance.max()) <= 4.0
    assert not balance.requires_grad
    seen = rows.extras["observation"][:, :1]
    if chosen:
        u = torch.randn(4000, 200, generator=torch.Generator().manual_seed(9)) * actor_of(policy).log_std.exp().detach()
        expected = (0.5 + 3.5 * ((actor_of(policy).law(seen)[0].detach()[:, 0] + u).tanh() + 1) / 2).mean()
    else:
        expected = torch.tensor(2.25)
    assert abs(float(balance.mean() - expected)) < 4 * 3.5 / 12**0.5 / 4000**0.5


def test_a_normaliser_leaves_a_balance_as_it_is() -> None:
    policy = policy_of(normalise=True)
    assert policy.normaliser is not None
    policy.normaliser.observe(5 + 3 * torch.randn(100, 3, dtype=DOUBLE))
    policy.normaliser.advance()
    seen, balance = torch.randn(5, 3, dtype=DOUBLE), torch.full((5, 1), 2.5, dtype=DOUBLE)
    found = policy.normalised(policy.state_of(seen, {"balance": balance}))
    torch.testing.assert_close(found[:, :3], policy.normaliser(seen))
    torch.testing.assert_close(found[:, 3:], balance)


def test_a_saved_policy_acts_the_same(tmp_path: Path) -> None:
    policy, seen = policy_of().float(), torch.randn(5, 3)
    policy.save(tmp_path)
    loaded = NetworkPolicy.load(tmp_path)
    torch.testing.assert_close(
        loaded.act(seen, torch.Generator(), greedy=True), policy.act(seen, torch.Generator(), greedy=True)
    )
    assert len(list(loaded.parameters())) == len(list(policy.parameters()))


def test_what_it_chose_is_in_the_metrics() -> None:
    policy, networks = learned_from(log_of(64), famo2o(hidden=(7,)), head="gaussian", steps=2, seed=0, batch=8)
    rows = networks.relabelled(rows_of(8, policy))
    ascent = BalanceAscent()
    found = ascent(rows, networks.evaluate(rows, ascent)).metrics
    assert 1.0 <= float(found["balance"]) <= 5.0
    assert float(found["balance/square"]) >= float(found["balance"]) ** 2


def test_outputs_at_a_chosen_balance_have_a_name() -> None:
    for output in (NetworkOutput("balance"), NetworkOutput("critic", proposal=Proposal(of="balance"))):
        assert output_of(output.name) == output


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"low": 2.0, "high": 2.0}, "need 0 <= low < high"),
        ({"width": 5}, "even width"),
        ({"base": 1.0}, "base > 1"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BalanceFamily(**settings)


def test_a_policy_without_a_model_of_balances_is_refused() -> None:
    with pytest.raises(ValueError, match=r"set its trunk to networks\.BalanceFamily"):
        learned_from(log_of(8), famo2o(hidden=(7,)).but(trunk=None), head="gaussian", steps=1, seed=0, batch=4)


def test_a_chosen_balance_has_one_action_of_the_policy_itself() -> None:
    for settings in ({"draws": 2}, {"target": True}, {"noise": 0.1}, {"sequence": 2, "model": "model"}):
        with pytest.raises(ValueError, match="one of the policy itself"):
            Proposal(of="balance", **settings)  # type: ignore[arg-type]


def test_a_policy_with_inputs_is_refused() -> None:
    space = Space(3, None, 2, inputs=(("last_action", 2),))
    with pytest.raises(ValueError, match=r"leave out sampling\.policy_input"):
        BalanceFamily().build(space, 2, torch.Generator())
