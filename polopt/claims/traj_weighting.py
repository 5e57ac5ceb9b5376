"""These programs measure what the paper of trajectory weighting claims."""

import itertools

import torch
from torch import Tensor

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.transitions import Log, decisions, greedy_actions, learned_from
from polopt.methods.traj_weighting import traj_weighting
from polopt.metrics import t_interval
from polopt.sampling import TrajectoryWeights, log_weights, successors

SEEDS = range(41, 46)
ALPHAS = (10.0, 1.0, 0.3, 0.1)
DEPTH = 4


def tree(seed: int, count: int = 60) -> tuple[Log, Tensor]:
    """Returns random trajectories of a binary tree of depth 4, whose edges have fixed rewards N(0, 1), and the nodes.
    Its state is the number of the node, a one in a row of zeros."""
    draw = torch.Generator().manual_seed(seed)
    rewards = torch.randn(2 ** (DEPTH + 1), generator=draw)
    node, rows = torch.zeros(count, dtype=torch.int64), []
    for depth in range(DEPTH):
        choice = torch.randint(2, (count,), generator=draw)
        after = 2 * node + 1 + choice
        rows.append((node, after, choice, rewards[after], torch.full((count,), depth == DEPTH - 1)))
        node = after
    before, after, choice, reward, over = (torch.stack(values, 1).flatten() for values in zip(*rows, strict=True))
    states = torch.eye(2 ** (DEPTH + 1))
    columns = {
        "observation": states[before],
        "next_observation": states[after],
        "action": choice,
        "reward": reward,
        "terminated": over,
        "truncated": torch.zeros_like(over),
    }
    return columns | {"following": successors(columns)}, before


def cloned_value(log: Log, node: Tensor, weights: Tensor) -> float:
    """Returns the value at the root of the policy that takes choices as often as the weighted log, by enumeration."""
    total = torch.zeros(2**DEPTH, 2, dtype=torch.float64).index_put((node, log["action"]), weights, accumulate=True)
    p = total / total.sum(1, keepdim=True)
    rewards = torch.zeros(2 ** (DEPTH + 1), dtype=torch.float64)
    rewards[2 * node + 1 + log["action"]] = log["reward"].double()
    value = 0.0
    for choices in itertools.product((0, 1), repeat=DEPTH):
        at, chance, gain = 0, 1.0, 0.0
        for choice in choices:
            share = float(p[at, choice])
            if chance == 0 or share == 0:
                chance = 0.0
                break
            chance *= share
            at = 2 * at + 1 + choice
            gain += float(rewards[at])
        value += chance * gain
    return value


@claim(
    "From one start the cloned policy's value is the weighted mean of the returns, and rises as alpha falls.",
    kind="theory",
    baseline="the value of the uniform log, which it must exceed",
)
def weighted_mean_of_returns() -> Finding:
    """With one start state weights of whole trajectories leave the flow through every state whole."""
    off, rises, gains = 0.0, True, list[float]()
    for seed in SEEDS:
        log, node = tree(seed)
        G = log["reward"].double().reshape(-1, DEPTH).sum(1)
        values = [float(G.mean())]
        for alpha in ALPHAS:
            weights = TrajectoryWeights(alpha=alpha, advantage=False)(log)
            w = weights.reshape(-1, DEPTH)[:, 0]
            values.append(cloned_value(log, node, weights))
            off = max(off, abs(values[-1] - float((w * G).sum() / w.sum())))
        rises &= all(b >= a for a, b in itertools.pairwise(values))
        gains.append(values[-1] - values[0])
    return Finding(
        measured={"largest error": off, "least gain": min(gains)},
        criterion="5 trees, four alphas: the weighted mean to 1e-9; never lower for a lower alpha; gain > 0.5",
        holds=off < 1e-9 and rises and min(gains) > 0.5,
    )


def mixed(seed: int) -> Log:
    """One trajectory in twenty has actions near 0.6, with reward 1, all others near -0.6, with reward 0."""

    def act(s: Tensor, draw: torch.Generator) -> Tensor:
        good = torch.rand(len(s), generator=draw) < 0.05
        return torch.where(good, 0.6, -0.6) + 0.05 * torch.randn(len(s), generator=draw)

    return decisions(2000, seed, act, lambda s, a: (a > 0).float())


def mean_action(alpha: float, seed: int) -> float:
    algorithm = traj_weighting(alpha=alpha, advantage=False).but(
        {"objective.weights.0.beta": 0.0, "networks.0.network.hidden": (8,), "networks.1.network.hidden": (8,)}
    )
    policy, _ = learned_from(mixed(seed), algorithm, head="squashed_gaussian", steps=200, seed=seed)
    return float(greedy_actions(policy, torch.linspace(-1, 1, 200)).mean())


@claim(
    "Imitation of a log of mostly bad trajectories becomes that of its good ones.",
    kind="headline",
    cost="slow",
    baseline="the same learner on the uniform log: a large alpha",
)
def better_than_uniform() -> Finding:
    own, uniform = ([mean_action(alpha, seed) for seed in SEEDS] for alpha in (0.1, 1e6))
    gain = t_interval([a - b for a, b in zip(own, uniform, strict=True)])
    return Finding(
        measured={"least mean action": min(own), "largest of uniform": max(uniform), "difference": gain.estimate},
        intervals={"difference": (gain.low, gain.high)},
        criterion="5 seeds: mean greedy actions > 0.3; of the uniform log all < 0",
        holds=min(own) > 0.3 and max(uniform) < 0,
    )


@claim(
    "Weights by the advantage leave the start states as they are, where those by the return prefer rich ones.",
    kind="part",
    baseline="weights by the return",
)
def starts_are_kept() -> Finding:
    measured: dict[str, float] = {}
    for name, advantage in (("advantage", True), ("return", False)):
        means = []
        for seed in SEEDS:
            log = decisions(4000, seed, lambda s, d: 2 * torch.rand(len(s), generator=d) - 1, lambda s, a: 3 * s + a)
            w = TrajectoryWeights(alpha=0.2, advantage=advantage)(log)
            means.append(float((w * log["observation"][:, 0]).sum() / w.sum()))
        measured[name] = max(abs(m) for m in means)
    return Finding(
        measured=measured,
        criterion="5 logs with rewards 3 s + a: the weighted mean of s within 0.06 of 0, by the return > 0.3",
        holds=measured["advantage"] < 0.06 and measured["return"] > 0.3,
    )


@mutation("the returns of other trajectories are taken", kills=weighted_mean_of_returns)
def shuffled(replace: Replace) -> None:
    right = log_weights.returns

    def returns(columns: Log, number: Tensor, count: int) -> Tensor:
        return right(columns, number, count).flip(0)

    replace(log_weights, "returns", returns)


@mutation("the value of the start is not taken off", kills=starts_are_kept)
def no_baseline(replace: Replace) -> None:
    def pinv(x: Tensor) -> Tensor:
        return torch.zeros_like(x.T)

    replace(log_weights.torch.linalg, "pinv", pinv)
