"""These programs measure what the paper of SRL claims."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab.braking_mass import BrakingMass, RepeatedThrust, returns_at
from polopt.lab.effects import More, effect
from polopt.lab.stepped import SteppedWorld, learned_in
from polopt.methods.sac import sac
from polopt.methods.srl_sequence import srl_sequence
from polopt.metrics import frequency_averaged_score
from polopt.network_evaluation import NetworkEvaluator, Place, Proposals
from polopt.network_training import NetworkTraining
from polopt.networks import ActionSequence
from polopt.policies.network import NetworkPolicy
from polopt.sampling import policy_input_of, transition_rows
from polopt.support import PLAIN

Side = Callable[[int, float], tuple[NetworkPolicy, Algorithm]]
J = 8
LENGTHS = (1, 2, 4, 8, 16, 30)
SIZES = {"hidden": (64, 64), "batch": 128, "start": 1000, "gamma": 0.95, "tau": 0.02, "temperature": 0.05}


def sequences() -> Algorithm:
    return srl_sequence(sequence=J, model_hidden=(64, 64), **SIZES)  # type: ignore[arg-type]


def single() -> Algorithm:
    return sac(**SIZES)  # type: ignore[arg-type]


def held() -> Algorithm:
    return single().but({"sampling.sequence": J})


def trained_in(world: Callable[[], SteppedWorld], algorithm: Callable[[], Algorithm]) -> Callable[[], Side]:
    def side(seed: int, lr: float) -> tuple[NetworkPolicy, Algorithm]:
        made = algorithm()
        policy, _ = learned_in(
            *(world(), made), head="squashed_gaussian", rounds=1000, updates=1, copies=4, lr=lr, seed=seed
        )
        return policy, made

    return lambda: side


@effect(
    "It keeps its return with fewer looks at the state, by the frequency-averaged score, and with a look at every step "
    "it has that of SAC.",
    kind="headline",
    method=trained_in(BrakingMass, sequences),
    controls={
        "SAC": trained_in(BrakingMass, single),
        "SAC that plays held actions": trained_in(BrakingMass, held),
        "SAC that learns from repeated actions": trained_in(lambda: RepeatedThrust(J), single),
    },
    criteria=[More("frequency-averaged score", times=1.3), More("return at every step", times=0.9)],
    step_sizes=(1e-3, 3e-3, 1e-2),
    trials=2,
    seeds=5,
    budget="minibatches",
    cost="slow",
    note="A mass that should come to rest at a target, with sequences of 8. The controls hold one action for as many "
    "steps: those of SAC at every step, of SAC that held its actions for 8 steps while transitions were collected, and "
    "of SAC whose transitions are of 8 steps with one action, which has 8 times as many steps of the world.",
)
def keeps_its_return(side: Side, *, seed: int, step_size: float) -> dict[str, float]:
    policy, algorithm = side(seed, step_size)
    returns = returns_at(BrakingMass(), policy, LENGTHS, policy_input_of(algorithm.sampling))
    score = frequency_averaged_score(LENGTHS, returns, largest=40)
    return {"frequency-averaged score": score, "return at every step": returns[0], "minibatches": 1000.0}


class ExactModel(nn.Module):
    """The world's own next state."""

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        return BrakingMass().step(state.flatten(0, -2), action.flatten(0, -2))[0].unflatten(0, state.shape[:-1])


def random_rows(seed: int, rows: int = 32) -> Experience:
    draw = torch.Generator().manual_seed(seed)
    state, action = torch.randn(rows, 2, generator=draw), 2 * torch.rand(rows, 1, generator=draw) - 1
    after, reward, never = BrakingMass().step(state, action)
    columns = {"observation": state, "action": action, "next_observation": after, "reward": reward}
    columns |= {"terminated": never, "truncated": never, "last_action": 2 * torch.rand(rows, 1, generator=draw) - 1}
    return transition_rows(columns, PLAIN)


def set_up(algorithm: Algorithm, seed: int) -> NetworkTraining:
    """Returns the networks of an algorithm beside a policy of sequences, with the world itself for a model."""
    policy = NetworkPolicy(
        observations=2,
        dimensions=1,
        head="squashed_gaussian",
        low=[-1.0],
        high=[1.0],
        seed=seed,
        trunk=ActionSequence(hidden=(16, 16)),
        inputs={"last_action": 1},
    )
    nn.init.normal_(policy.actor.out[0].weight, generator=torch.Generator().manual_seed(seed))  # type: ignore
    networks = NetworkTraining(policy, algorithm, 1e-3, torch.Generator().manual_seed(seed))
    networks.targets["model"] = ExactModel()
    return networks


def gradient(loss: Tensor, policy: NetworkPolicy) -> Tensor:
    found = torch.autograd.grad(loss, [*policy.actor.parameters()])
    return torch.cat([each.flatten() for each in found])


@claim(
    "With an exact model the policy's loss is SAC's, summed along the trajectory of its actions in the world.",
    kind="identity",
    baseline="the loss from the world's own states",
)
def sums_along_the_trajectory() -> Finding:
    errors = list[float]()
    for seed in range(3):
        made = srl_sequence(sequence=4, model_hidden=(8,), hidden=(16, 16))
        networks, rows = set_up(made, seed), random_rows(seed)
        policy, draw = networks.policy, torch.Generator().manual_seed(9)
        networks._generator.manual_seed(9)
        loss = made.objective(rows, networks.evaluate(rows, made.objective)).loss
        state, last = rows.extras["observation"][:, 0], rows.extras["last_action"][:, 0]
        action, logp = policy.propose_sequence(torch.cat([state, last], 1), 4, draw)
        expected = torch.zeros(())
        for j in range(4):
            q = networks.modules["critic"](state, action[:, j]).amin(-1)
            expected = expected + (logp[:, j] - q).mean()  # the temperature is 1 at first
            state = BrakingMass().step(state, action[:, j].detach())[0]
        difference = gradient(loss, policy) - gradient(expected, policy)
        errors += [float((loss - expected).detach().abs()), float(difference.abs().max())]
    return Finding(
        measured={"largest error": max(errors)},
        criterion="loss and gradient differ by < 1e-4, with 4 actions, on 3 random batches",
        holds=max(errors) < 1e-4,
    )


@mutation("every action is judged at the state that was seen", kills=sums_along_the_trajectory)
def at_the_first_state(replace: Replace) -> None:
    original = NetworkEvaluator._imagine

    def imagine(
        self: NetworkEvaluator, policy: NetworkPolicy, place: Place, experience: Experience, proposals: Proposals
    ) -> tuple[Tensor, Tensor]:
        made = original(self, policy, place, experience, proposals)
        states = proposals.imagined[place]
        proposals.imagined[place] = states[:, :, :1].expand_as(states)
        return made

    replace(NetworkEvaluator, "_imagine", imagine)


@claim(
    "A sequence of one action is SAC with a recurrent policy that reads the action before.",
    kind="identity",
    baseline="SAC with the same policy",
)
def of_one_is_sac() -> Finding:
    errors = list[float]()
    for seed in range(3):
        rows, found = random_rows(seed), list[tuple[Tensor, Tensor]]()
        for algorithm in (srl_sequence(sequence=1, model_hidden=(8,), hidden=(16, 16)), sac(hidden=(16, 16))):
            beside = algorithm if len(algorithm.networks) == 3 else srl_sequence(model_hidden=(8,), hidden=(16, 16))
            both = beside.but(objective=algorithm.objective)
            networks = set_up(both, seed)
            networks._generator.manual_seed(9)
            loss = both.objective(rows, networks.evaluate(rows, both.objective)).loss
            found.append((loss.detach(), gradient(loss, networks.policy)))
        errors += [float((a - b).abs().max()) for a, b in zip(*found, strict=True)]
    return Finding(
        measured={"largest error": max(errors)},
        criterion="loss and gradient differ by < 1e-6 on 3 random batches",
        holds=max(errors) < 1e-6,
    )
