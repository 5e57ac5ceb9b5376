"""These programs measure what the papers of DQN, its double estimator and its longer returns claim."""

from typing import Any

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.transitions import Log, learned_from
from polopt.methods.dqn import dqn
from polopt.metrics import t_interval
from polopt.network_evaluation import NetworkEvaluator
from polopt.outputs import NetworkOutput
from polopt.sampling import successors

SEEDS = range(41, 51)
STATES, GAMMA = 5, 0.9


def walk(count: int, seed: int) -> Log:
    """Returns random walks on a line of five states from its left end. A step to the left has reward 0.02, one to the
    right 0, and the one from the right end 1, with which the episode terminates."""
    draw = torch.Generator().manual_seed(seed)
    action = torch.randint(2, (count,), generator=draw)
    state, found = 0, list[tuple[int, int]]()
    for choice in action.tolist():
        after = state + 1 if choice else max(0, state - 1)
        found.append((state, after))
        state = 0 if after == STATES else after
    before, after = torch.tensor(found).T
    states = torch.eye(STATES + 1)[:, :STATES]
    columns = {
        "observation": states[before],
        "next_observation": states[after],
        "action": action,
        "reward": torch.where(after == STATES, 1.0, 0.02 * (1 - action)),
        "terminated": after == STATES,
        "truncated": torch.zeros(count, dtype=torch.bool),
    }
    return columns | {"following": successors(columns)}


def exact_values() -> Tensor:
    """Returns Q of the best policy, [5, 2], by value iteration."""
    q = torch.zeros(STATES, 2)
    for _ in range(200):
        v = torch.cat([q.amax(1), torch.zeros(1)])
        left = torch.tensor([0, *range(STATES - 1)])
        right = GAMMA * v[1:]
        right[-1] = 1.0
        q = torch.stack([0.02 + GAMMA * v[left], right], 1)
    return q


def values(algorithm: Algorithm, seed: int, steps: int) -> Tensor:
    """Returns the learned values of the choices in each state, [5, 2]."""
    policy, _ = learned_from(walk(2000, seed), algorithm, head="action_values", steps=steps, seed=seed)
    with torch.no_grad():
        return policy.action_values(torch.eye(STATES))


def made(**settings: Any) -> Algorithm:
    return dqn(**{"gamma": GAMMA, "target_every": 25, **settings})


@claim(
    "From random choices it learns the values of the best ones.",
    kind="headline",
    cost="slow",
    baseline="the same regression on the reward alone: gamma = 0",
)
def best_values() -> Finding:
    exact = exact_values()
    own, near = ([values(made(gamma=gamma), seed, 1000) for seed in SEEDS[:3]] for gamma in (GAMMA, 0.0))
    off = max(float((q - exact).abs().max()) for q in own)
    right = [float((q.argmax(1) == exact.argmax(1)).float().mean()) for q in own]
    short = [float((q.argmax(1) == exact.argmax(1)).float().mean()) for q in near]
    return Finding(
        measured={"largest error": off, "best choices": min(right), "best choices of the reward alone": max(short)},
        criterion="3 seeds: every value within 0.1 of value iteration's and every choice the best; of the reward alone "
        "at most 2 of 5",
        holds=off < 0.1 and min(right) == 1 and max(short) <= 0.4,
    )


def noise(count: int, seed: int) -> Log:
    """Returns a log in which rewards are noise N(0, 1) whatever is chosen among eight, so that every value is 0."""
    draw = torch.Generator().manual_seed(seed)
    state, after = (2 * torch.rand(count, 1, generator=draw) - 1 for _ in range(2))
    never = torch.zeros(count, dtype=torch.bool)
    return {
        "observation": state,
        "next_observation": after,
        "action": torch.randint(8, (count,), generator=draw),
        "reward": torch.randn(count, generator=draw),
        "terminated": never,
        "truncated": never,
    }


def bias(double: bool, seed: int) -> float:
    """Returns the mean value of the largest choice, where every true value is 0."""
    algorithm = made(double=double, target_every=50)
    policy, _ = learned_from(noise(400, seed), algorithm, head="action_values", steps=400, seed=seed)
    with torch.no_grad():
        return float(policy.action_values(torch.linspace(-1, 1, 200)[:, None]).amax(1).mean())


@claim(
    "With the choice taken by the network and its value by the copy it overestimates less.",
    kind="part",
    cost="slow",
    baseline="choice and value both of the copy",
)
def less_overestimation() -> Finding:
    double, single = ([bias(way, seed) for seed in SEEDS] for way in (True, False))
    gain = t_interval([b - a for a, b in zip(double, single, strict=True)])
    return Finding(
        measured={"double": sum(double) / 10, "single": sum(single) / 10, "difference": gain.estimate},
        intervals={"difference": (gain.low, gain.high)},
        criterion="10 seeds, true value 0: single > 0.5 on average; the difference's 95 % interval above 0",
        holds=sum(single) / 10 > 0.5 and gain.low > 0,
    )


@claim(
    "Returns of five steps bring the reward to the beginning with fewer updates of the copy.",
    kind="part",
    cost="slow",
    baseline="one step",
)
def longer_returns() -> Finding:
    """Until its first update the copy is what it began as: one step sees the reward in the last state alone."""
    start = [[float(values(made(n_steps=n, target_every=10_000), seed, 300)[0, 1]) for seed in SEEDS] for n in (5, 1)]
    gain = t_interval([a - b for a, b in zip(*start, strict=True)])
    return Finding(
        measured={"five steps": sum(start[0]) / 10, "one step": sum(start[1]) / 10, "difference": gain.estimate},
        intervals={"difference": (gain.low, gain.high)},
        criterion="10 seeds, the value of a step to the right at the left end, before the copy's first update: the "
        "difference's 95 % interval above 0, one step within 0.05 of 0",
        holds=gain.low > 0 and abs(sum(start[1]) / 10) < 0.05,
    )


@mutation("the choice of the copy is taken, whatever is asked for", kills=less_overestimation)
def never_double(replace: Replace) -> None:
    right = NetworkEvaluator._propose

    def propose(self: NetworkEvaluator, place: Any, experience: Any, proposals: Any) -> tuple[Tensor, Tensor]:
        return right(self, (type(place[0])(target=True), place[1]), experience, proposals)

    replace(NetworkEvaluator, "_propose", propose)


@mutation("the value of the network itself is taken, not that of the copy", kills=longer_returns)
def no_copy(replace: Replace) -> None:
    right = NetworkEvaluator._action_values

    def action_values(self: NetworkEvaluator, output: NetworkOutput, *given: Any) -> Tensor:
        return right(self, NetworkOutput(output.network, False, output.next, output.proposal), *given)

    replace(NetworkEvaluator, "_action_values", action_values)
