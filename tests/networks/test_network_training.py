"""One step of every network and of the policy, against the formulas written out."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from small_actors import LinearGaussian, batch
from torch import nn

from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage
from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.network_training import NetworkTraining
from polopt.networks import LearnedNetwork, Network, QNetwork, Space, Temperature, ValueNetwork
from polopt.objectives import (
    Backup,
    ExpectileError,
    LoggedActionValue,
    NetworkAdvantageWeight,
    NetworkNextValue,
    NetworkRegression,
    PolicyGradient,
    ProposedActionError,
    ProposedActionValue,
    SquaredError,
    Surrogate,
    TemperatureLoss,
    ValueAscent,
)
from polopt.objectives.network_losses import NetworkObjective
from polopt.outputs import NetworkOutput, Proposal, output_of
from polopt.policies.network import NetworkPolicy
from polopt.rewards import EnvironmentReward
from polopt.training.learner import Learner
from polopt.training.specs import OptimiserSpec, StageSpec

GAMMA, TAU = 0.9, 0.1
CRITIC = QNetwork(hidden=(5,))


def soft(**changes: Any) -> Algorithm:
    target = Backup(gamma=GAMMA, next=ProposedActionValue(temperature="temperature"))
    return Algorithm(
        reward=EnvironmentReward(),
        credit=ConstantAdvantage(),
        networks=[
            LearnedNetwork(
                name="critic",
                network=CRITIC,
                objective=NetworkRegression(network="critic", target=target, error=SquaredError(coefficient=0.5)),
                target_tau=TAU,
            ),
            LearnedNetwork(name="temperature", network=Temperature(initial=0.7), objective=TemperatureLoss()),
        ],
        objective=ValueAscent(temperature="temperature"),
        **changes,
    )


def implicit() -> Algorithm:
    return Algorithm(
        reward=EnvironmentReward(),
        credit=ConstantAdvantage(),
        networks=[
            LearnedNetwork(
                name="value",
                network=ValueNetwork(hidden=(5,)),
                objective=NetworkRegression(
                    network="value", target=LoggedActionValue(), error=ExpectileError(expectile=0.8)
                ),
            ),
            LearnedNetwork(
                name="critic",
                network=CRITIC,
                objective=NetworkRegression(network="critic", target=Backup(gamma=GAMMA, next=NetworkNextValue())),
                target_tau=TAU,
            ),
        ],
        objective=Surrogate(ratio=None, trust=PolicyGradient(), weights=[NetworkAdvantageWeight(beta=2.0, cap=3.0)]),
    )


def training(algorithm: Algorithm, seed: int = 3) -> NetworkTraining:
    found = NetworkTraining(LinearGaussian(), algorithm, 1e-3, torch.Generator().manual_seed(seed))
    for module in (*found.modules.values(), *found.targets.values()):
        module.double()
    for name in found.targets:  # other weights than the network's own
        for p in found.targets[name].parameters():
            p.add_(0.1)
    return found


def q_by_hand(module: nn.Module, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Each head as two matrix products of its own."""
    x = torch.cat([observation, action], -1)
    weights = list(module.parameters())
    heads = []
    for h in range(2):
        inner = torch.relu(x @ weights[0][h] + weights[1][h])
        heads.append((inner @ weights[2][h] + weights[3][h])[..., 0])
    return torch.stack(heads, -1)


def test_names_of_outputs_are_read_back() -> None:
    for proposal in (None, Proposal(), Proposal(target=True), Proposal(True, 0.2, 0.5)):
        for target in (False, True):
            for after in (False, True):
                output = NetworkOutput("critic_2", target, after, proposal)
                assert output_of(output.name) == output
    assert output_of("extras.velocity") is None
    assert output_of("entropy") is None


def test_the_soft_critic_is_regressed_on_the_soft_target() -> None:
    found, data = training(soft()), batch()
    draws = copy.deepcopy(found._evaluator.generator)
    objective = found.specs["critic"].objective
    evaluation = found.evaluate(data, objective)
    loss = objective(data, evaluation).loss
    observation, after = data.extras["observation"].unbind(1)
    a, logp = found.policy.propose(after, draws)
    value = q_by_hand(found.targets["critic"], after, a).amin(-1) - 0.7 * logp
    y = data.reward[:, 0] + GAMMA * torch.where(data.terminated[:, 0], 0, value)
    q = q_by_hand(found.modules["critic"], observation, data.extras["action"][:, 0])
    expected = (0.5 * (q - y.detach()[:, None]).square()).sum(-1).mean()
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)  # the temperature is the exponential of a float32
    assert data.truncated.any()
    assert data.terminated.any()


def test_the_policy_climbs_through_the_critic_alone() -> None:
    found, data = training(soft()), batch()
    draws = copy.deepcopy(found._evaluator.generator)
    objective = found.algorithm.objective
    loss = objective(data, found.evaluate(data, objective)).loss
    loss.backward()
    got = [p.grad.clone() for p in found.policy.parameters()]
    assert all(p.grad is None for module in found.modules.values() for p in module.parameters())
    found.policy.zero_grad()
    observation = data.extras["observation"][:, 0]
    a, logp = found.policy.propose(observation, draws)
    (0.7 * logp - q_by_hand(found.modules["critic"], observation, a).amin(-1)).mean().backward()
    for gradient, parameter in zip(got, found.policy.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-6, atol=1e-9)


class _Sum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.scale * torch.cat(inputs, -1)


class Everything(Network):
    inputs = ("next_observation", "extras.advantages", "observation", "action")

    def build(self, space: Space, generator: torch.Generator) -> nn.Module:
        return _Sum()


class NextOutput(NetworkObjective):
    policy_outputs = frozenset({NetworkOutput("all", next=True).name, NetworkOutput("all").name})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        values = [evaluation.extras[name.removeprefix("extras.")] for name in sorted(self.policy_outputs)]
        return Loss(values[1].mean() - values[0].mean(), {})


def test_a_network_reads_its_inputs_in_their_order_and_learns_at_the_next_state_too() -> None:
    algorithm = soft().but(networks=[LearnedNetwork(name="all", network=Everything(), objective=NextOutput())])
    assert "extras.advantages" in algorithm.required_fields
    data = batch()
    data = data.replace(extras=data.extras | {"advantages": torch.arange(28.0, dtype=torch.double).reshape(7, 1, 4)})
    found = training(algorithm)
    objective = algorithm.networks[0].objective
    evaluation = found.evaluate(data, objective)
    before, after = data.extras["observation"].unbind(1)
    for name, state in (("network.all", before), ("network.all.next", after)):
        inputs = [after, data.extras["advantages"][:, 0], state, data.extras["action"][:, 0]]
        torch.testing.assert_close(evaluation.extras[name][:, 0], 2 * torch.cat(inputs, -1))
    with torch.enable_grad():
        found.modules["all"].requires_grad_(True)
        objective(data, found.evaluate(data, objective)).loss.backward()
    expected = (after.sum() - before.sum()) / (7 * 12)
    torch.testing.assert_close(found.modules["all"].scale.grad, expected)


def test_the_temperature_rises_where_the_entropy_is_too_low() -> None:
    for target, sign in ((-50.0, 1), (50.0, -1)):
        algorithm = soft().but({"networks.1.objective.target": target})
        found = training(algorithm)
        found.begin_minibatch()
        found.step(batch())
        log = next(found.modules["temperature"].parameters())
        assert float(log.detach() - torch.tensor(0.7).log()) * sign < 0


def test_expectiles_and_limited_weights() -> None:
    found, data = training(implicit()), batch()
    observation, after = data.extras["observation"].unbind(1)
    q_target = q_by_hand(found.targets["critic"], observation, data.extras["action"][:, 0]).amin(-1)
    v = found.modules["value"](observation)
    u = q_target - v
    value_loss = found.specs["value"].objective
    loss = value_loss(data, found.evaluate(data, value_loss)).loss
    expected = (torch.where(u < 0, 0.2, 0.8) * u * u).mean()
    torch.testing.assert_close(loss, expected)
    critic_loss = found.specs["critic"].objective
    loss = critic_loss(data, found.evaluate(data, critic_loss)).loss
    y = data.reward[:, 0] + GAMMA * ~data.terminated[:, 0] * found.modules["value"](after)
    q = q_by_hand(found.modules["critic"], observation, data.extras["action"][:, 0])
    torch.testing.assert_close(loss, (q - y[:, None]).square().sum(-1).mean())
    objective = found.algorithm.objective
    loss = objective(data, found.evaluate(data, objective)).loss
    logp = found.policy.evaluate(data).logp[:, 0]
    weight = (2 * u).exp().clamp(max=3).detach()
    # Its value is a ratio of one; the gradient is that of the weighted likelihood.
    loss.backward()
    got = [p.grad.clone() for p in found.policy.parameters()]
    found.policy.zero_grad()
    (-(weight * logp).mean()).backward()
    for gradient, parameter in zip(got, found.policy.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad)


def test_ascent_with_a_scale_and_the_distance_from_the_logged_action() -> None:
    objective = ValueAscent(over="first", scale=2.5, regularise=[ProposedActionError()])
    found, data = training(soft().but(objective=objective)), batch()
    draws = copy.deepcopy(found._evaluator.generator)
    loss = objective(data, found.evaluate(data, objective)).loss
    observation = data.extras["observation"][:, 0]
    a, _ = found.policy.propose(observation, draws)
    q = q_by_hand(found.modules["critic"], observation, a)[:, 0]
    expected = -(2.5 / q.abs().mean().detach() * q).mean() + (a - data.extras["action"][:, 0]).square().mean()
    torch.testing.assert_close(loss, expected)


def test_target_copies_move_after_their_network() -> None:
    found = training(soft().but({"networks.0.target_every": 2}))
    before = copy.deepcopy(found.targets["critic"].state_dict())
    for step in (1, 2):
        found.begin_minibatch()
        found.step(batch(seed=step))
        found.move_targets()
        for name, value in found.targets["critic"].state_dict().items():
            now = found.modules["critic"].state_dict()[name]
            expected = before[name] if step == 1 else (1 - TAU) * before[name] + TAU * now
            torch.testing.assert_close(value, expected)


def test_what_is_saved_is_what_goes_on() -> None:
    def left(stop: int | None) -> dict[str, torch.Tensor]:
        found = training(soft())
        for i in range(4):
            if i == stop:
                kept = {k: v.clone() for k, v in found.state().items()}
                generator = found._evaluator.generator.get_state()
                found = training(soft(), seed=99)
                found.load(kept)
                found._evaluator.generator.set_state(generator)
            found.begin_minibatch()
            found.step(batch(seed=i))
            found.move_targets()
        return found.state()

    whole, resumed = left(None), left(2)
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_the_policy_may_step_less_often() -> None:
    policy = LinearGaussian()
    stage = StageSpec(method="ppo", steps=1, rows=12, minibatches=4, optimiser=OptimiserSpec(lr=0.01, clip=1e9))
    algorithm = soft(policy_every=2)
    learner = Learner(policy, algorithm, stage, torch.Generator().manual_seed(0))
    for module in (*learner.networks.modules.values(), *learner.networks.targets.values()):
        module.double()
    learner.update(batch(12), 0)
    steps = {int(v) for k, v in learner.stepper.state().items() if k.endswith(".step")}
    assert steps == {2}
    assert {int(v) for k, v in learner.networks.steppers["critic"].state().items() if k.endswith(".step")} == {4}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"networks": []}, "a part reads the network 'critic', and networks has none"),
        ({"networks.0.target_tau": None}, "reads the target copy of the network 'critic'; set its target_tau"),
        ({"networks.1.name": "temperatur"}, "reads the network 'temperature', and networks has .*did you mean"),
        ({"networks.1.name": "critic"}, "two networks have one name"),
        (
            {"networks.0.objective.target.next.target_policy": True},
            "reads the policy's target copy; set policy_target_tau",
        ),
        ({"policy_every": 0}, "policy_every and policy_target_every must be >= 1"),
        ({"policy_target_every": 0}, "policy_every and policy_target_every must be >= 1"),
        ({"networks.0.target_tau": 1.5}, r"target_tau must be in \(0, 1\]"),
        ({"networks.1.name": "logp"}, "not action, logp, observation or policy"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        soft().but(changes).check_networks()


def test_step_sizes_take_the_course_of_the_stages() -> None:
    algorithm = soft().but({"networks.0.lr": 1e-2})
    stage = StageSpec(steps=4, rows=7, optimiser=OptimiserSpec(lr=1e-3, decay="linear"))
    learner = Learner(LinearGaussian(), algorithm, stage, torch.Generator().manual_seed(0))
    for module in (*learner.networks.modules.values(), *learner.networks.targets.values()):
        module.double()
    for step in range(4):
        learner.update(batch(), step)
        steppers: dict[str, Any] = learner.networks.steppers
        rates = {name: float(stepper.lr) for name, stepper in steppers.items()}
        assert rates == pytest.approx({"critic": 1e-2 * (1 - step / 4), "temperature": 1e-3 * (1 - step / 4)})


@pytest.mark.parametrize("algorithm", [soft(), soft(policy_every=2), implicit()], ids=["soft", "delayed", "implicit"])
def test_steps_on_single_decisions_are_those_on_rows(algorithm: Algorithm, monkeypatch: pytest.MonkeyPatch) -> None:
    """One minibatch has the same rows in the same order both ways, and draws the same noise."""
    ends: list[list[torch.Tensor]] = []
    for flat in (True, False):
        policy = NetworkPolicy(
            observations=3, dimensions=2, head="squashed_gaussian", low=[-3.0] * 2, high=[3.0] * 2, hidden=(4,)
        ).double()
        stage = StageSpec(steps=1, rows=16, epochs=3, optimiser=OptimiserSpec(lr=0.01, clip=1e9))
        learner = Learner(policy, algorithm.but(), stage, torch.Generator().manual_seed(0))
        for module in (*learner.networks.modules.values(), *learner.networks.targets.values()):
            module.double()
        data = batch(16)
        data = data.replace(extras=data.extras | {"action": data.extras["action"].tanh()})
        data = learner.algorithm.with_advantages(data)
        assert learner._is_flat(data)
        if not flat:
            monkeypatch.setattr(learner, "_is_flat", lambda _: False)
        record = learner.update(data, 0)
        modules = [policy, *learner.networks.modules.values(), *learner.networks.targets.values()]
        numbers = torch.tensor([record["critic/loss"], record["loss"]], dtype=torch.float64)
        ends.append([numbers, *(p.detach() for module in modules for p in module.parameters())])
    for a, b in zip(*ends, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_the_policy_climbs_with_the_actions_that_its_networks_learned_from() -> None:
    """In a minibatch the policy acts once in each state; losses of networks send it no gradient."""
    found, data = training(soft()), batch()
    draws = copy.deepcopy(found._evaluator.generator)
    found.begin_minibatch()
    found.step(data)
    objective = found.algorithm.objective
    assert all(p.grad is None for p in found.policy.parameters())
    objective(data, found.evaluate(data, objective)).loss.backward()
    got = [p.grad.clone() for p in found.policy.parameters()]
    found.policy.zero_grad()
    found.move_targets()
    observation, after = data.extras["observation"].unbind(1)
    found.policy.propose(after, draws)
    a, logp = found.policy.propose(observation, draws)
    alpha = found.modules["temperature"](observation).detach()
    (alpha * logp - q_by_hand(found.modules["critic"], observation, a).amin(-1)).mean().backward()
    for gradient, parameter in zip(got, found.policy.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-6, atol=1e-9)
    again = found.evaluate(data, objective).extras
    name = NetworkOutput("logp", proposal=Proposal()).name.removeprefix("extras.")
    assert not torch.equal(again[name], logp), "another minibatch has actions of its own"
