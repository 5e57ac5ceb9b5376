"""These programs measure what the paper of RLPD claims of its critics."""

import itertools
from typing import Any

import torch
from torch import Tensor

from polopt import network_training
from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.transitions import cliff, endless_noise, learned_from
from polopt.methods.rlpd import rlpd
from polopt.networks.critics import EnsembleLayerNorm
from polopt.sampling import transition_rows

SEEDS = range(41, 44)


def far_value(layer_norm: bool, seed: int) -> float:
    """Returns the largest |Q| at states thirty times as far as any logged one; logged rewards are within 0.2 of 0."""
    algorithm = rlpd(hidden=(32, 32), heads=4).but({"networks.0.network.layer_norm": layer_norm})
    _, networks = learned_from(cliff(seed), algorithm, head="squashed_gaussian", steps=300, seed=seed)
    states, action = torch.tensor([-30.0, 30.0])[:, None], torch.tensor([-1.0, 1.0])[:, None]
    with torch.no_grad():
        return float(networks.modules["critic"](states, action).abs().max())


@claim(
    "With layer norms the critics' values stay near the logged ones, far from the log.",
    kind="headline",
    cost="slow",
    baseline="the same critics without",
)
def bounded_values() -> Finding:
    own, plain = ([far_value(norm, seed) for seed in SEEDS] for norm in (True, False))
    return Finding(
        measured={"largest value": max(own), "least without layer norms": min(plain)},
        criterion="3 seeds: |Q| < 1.5 with layer norms; > 2 without",
        holds=max(own) < 1.5 and min(plain) > 2,
    )


@mutation("no layer norm", kills=bounded_values)
def no_norm(replace: Replace) -> None:
    def forward(self: EnsembleLayerNorm, x: Tensor) -> Tensor:
        return x

    replace(EnsembleLayerNorm, "forward", forward)


def targets(draws: int) -> tuple[float, float, float]:
    """Returns the mean target over draws of two critics of five; the mean over all pairs; and that of the least of the
    five. The policy's action is drawn alike each time."""
    from polopt.network_training import NetworkTraining
    from polopt.policies.network import NetworkPolicy

    made = rlpd(hidden=(8,), heads=5, entropy_backup=False, gamma=1.0)
    policy = NetworkPolicy(observations=1, dimensions=1, head="deterministic", low=[-1.0], high=[1.0], hidden=(8,))
    draw = torch.Generator().manual_seed(41)
    networks = NetworkTraining(policy, made, 1e-3, draw)
    log = endless_noise(200, 41)
    rows = transition_rows({**log, "reward": torch.zeros(200)}, policy.head.support)
    objective: Any = made.networks[0].objective
    with torch.no_grad():
        mean = sum(float(objective.target(rows, networks.evaluate(rows, objective)).mean()) for _ in range(draws))
        action = policy.propose(log["next_observation"], draw).action
        q = networks.targets["critic"](log["next_observation"], action)
        pairs = [q[:, list(pair)].amin(1).mean() for pair in itertools.combinations(range(5), 2)]
        return mean / draws, float(torch.stack(pairs).mean()), float(q.amin(1).mean())


@claim(
    "The target is the least of two critics that are drawn anew, on average that over all pairs.",
    kind="identity",
    baseline="the least of all critics",
)
def pairs_of_critics() -> Finding:
    mean, exact, least = targets(400)
    return Finding(
        measured={"mean": mean, "over all pairs": exact, "least of all": least},
        criterion="within a tenth of the distance to the least of all critics",
        holds=abs(mean - exact) < 0.1 * (exact - least),
    )


@mutation("the first two critics are always taken", kills=pairs_of_critics)
def first_two(replace: Replace) -> None:
    replace(network_training.torch, "randperm", lambda count, generator=None: torch.arange(count))
