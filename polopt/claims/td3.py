"""These programs measure what the paper of TD3 claims."""

from typing import Any

import torch
from torch import Tensor, nn

from polopt import network_training
from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.transitions import endless_noise, learned_from
from polopt.methods.td3 import td3
from polopt.metrics import t_interval
from polopt.network_training import NetworkTraining
from polopt.objectives import NetworkRegression
from polopt.policies.network import NetworkPolicy
from polopt.sampling import transition_rows

SEEDS = range(30, 40)
WIDTH = 0.05


def bias(algorithm: Algorithm, seed: int) -> float:
    """Returns the mean value of the policy's actions, the least of the critic's heads, where every true value is 0."""
    policy, networks = learned_from(endless_noise(500, seed), algorithm, head="deterministic", steps=400, seed=seed)
    states = torch.linspace(-1, 1, 500)[:, None]
    with torch.no_grad():
        action = policy.propose(states, torch.Generator()).action
        return float(networks.modules["critic"](states, action).amin(-1).mean())


def critics(heads: int) -> Algorithm:
    changes = {"networks.0.network.heads": heads, "networks.0.target_tau": 0.05}
    return td3(gamma=0.9, hidden=(32, 32)).but(changes, policy_target_tau=0.05)


@claim(
    "The smaller of two critics overestimates values less than one critic does.",
    kind="headline",
    cost="slow",
    refuted=True,
    baseline="one critic, all else the same",
)
def less_overestimation() -> Finding:
    two, one = ([bias(critics(heads), seed) for seed in SEEDS] for heads in (2, 1))
    gain = t_interval([b - a for a, b in zip(two, one, strict=True)])
    return Finding(
        measured={"two critics": sum(two) / len(two), "one critic": sum(one) / len(one), "difference": gain.estimate},
        intervals={"difference": (gain.low, gain.high)},
        criterion="10 seeds, true value 0: one critic > 0.3 on average; the difference's 95 % interval above 0",
        holds=sum(one) / len(one) > 0.3 and gain.low > 0,
        note="It is less on most seeds, and not by much: 0.14 (-0.17 to 0.45) over ten, 0.16 (0.03 to 0.29) over eight "
        "others, as the policy climbs what both critics have in common.",
    )


class Peak(nn.Module):
    """Q(s, a) = exp(-(a / 0.05)^2), a peak of which no neighbour knows, by two heads."""

    def forward(self, observation: Tensor, action: Tensor) -> Tensor:
        return (-(action / WIDTH).square()).exp().expand(*action.shape[:-1], 2)


def value_at_the_peak(smoothing: float, seed: int) -> float:
    """Returns the mean of max_a Q as the targets take it, with the policy's action at the peak."""
    made, draw = td3(gamma=1.0, smoothing=smoothing, hidden=(8,)), torch.Generator().manual_seed(seed)
    policy = NetworkPolicy(observations=1, dimensions=1, head="deterministic", low=[-1.0], high=[1.0], hidden=(8,))
    for parameter in policy.parameters():
        nn.init.zeros_(parameter)
    networks = NetworkTraining(policy, made, 1e-3, draw)
    networks.targets["critic"] = Peak()
    log = endless_noise(20_000, seed)
    rows = transition_rows({**log, "reward": torch.zeros(20_000)}, policy.head.support)
    objective: NetworkRegression = made.networks[0].objective  # type: ignore[assignment]
    with torch.no_grad():
        return float(objective.target(rows, networks.evaluate(rows, objective)).mean())


@claim(
    "Its targets take a narrow peak of the critic for what it is worth in its neighbourhood.",
    kind="part",
    baseline="no noise on the action of the target: the whole peak",
)
def smooth_targets() -> Finding:
    """Over Gaussian noise of standard deviation e the mean of a peak of width w is 1 / sqrt(1 + 2 (e / w)^2)."""
    exact = (1 + 2 * (0.2 / WIDTH) ** 2) ** -0.5
    smooth, plain = value_at_the_peak(0.2, 0), value_at_the_peak(0.0, 0)
    return Finding(
        measured={"with noise": smooth, "exact": exact, "without": plain},
        criterion="with noise within 5 % of the exact mean, without noise 1",
        holds=abs(smooth / exact - 1) < 0.05 and abs(plain - 1) < 1e-6,
    )


@mutation("the noise is drawn once, for all of the batch", kills=smooth_targets)
def one_draw(replace: Replace) -> None:
    right = torch.randn

    def randn(*size: Any, **settings: Any) -> Tensor:
        found: Tensor = right(*size, **settings)
        return found[:1].expand_as(found)

    replace(network_training.torch, "randn", randn)
