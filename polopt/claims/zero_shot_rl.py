"""These programs measure what the thesis on zero-shot RL claims."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems import reward_free as problem
from polopt.claims.problems.reward_free import mean_reward, moves
from polopt.lab.transitions import Log, learned_from
from polopt.methods import zero_shot_rl as parts
from polopt.methods.zero_shot_rl import ForwardBackwardLoss, zero_shot_rl
from polopt.metrics import t_interval
from polopt.network_training import NetworkTraining
from polopt.policies.network import NetworkPolicy
from polopt.sampling import on_sphere

SEEDS = range(41, 46)
WEIGHT = 0.01


def made(conservative: str = "none", weight: float = 0.0) -> Algorithm:
    return zero_shot_rl(
        conservative=conservative,  # type: ignore[arg-type]
        weight=weight,
        dimensions=16,
        gamma=0.8,
        tau=0.05,
        hidden=(64, 64),
        batch=128,
    )


def learned(log: Log, algorithm: Algorithm, seed: int, steps: int = 300) -> tuple[NetworkPolicy, NetworkTraining]:
    return learned_from(log, algorithm, head="deterministic", steps=steps, seed=seed, lr=3e-3, batch=128)


@claim(
    "Rewards that are given after learning are acted on at once.",
    kind="part",
    cost="slow",
    baseline="task vectors of the same policy that are random, or those of the log's mean state",
)
def rewards_afterwards() -> Finding:
    found: dict[str, list[float]] = {"inferred": [], "random": [], "mean state": []}
    for seed in range(SEEDS.start, SEEDS.start + 10):
        log = moves(4000, seed)
        policy, networks = learned(log, made(), seed)
        backward = networks.modules["backward"]
        with torch.no_grad():
            blind = on_sphere(backward(log["next_observation"]).mean(0)).expand(8, -1)
        random = on_sphere(torch.randn(8, 16, generator=torch.Generator().manual_seed(seed)))
        for name, tasks in {"inferred": None, "random": random, "mean state": blind}.items():
            found[name].append(mean_reward(policy, backward, log, seed, tasks=tasks))
    leads = {
        f"lead over {name}": t_interval(
            [own - other for own, other in zip(found["inferred"], found[name], strict=True)]
        )
        for name in ("random", "mean state")
    }
    return Finding(
        measured={name: sum(values) / len(values) for name, values in found.items()}
        | {name: lead.estimate for name, lead in leads.items()},
        intervals={name: (lead.low, lead.high) for name, lead in leads.items()},
        criterion="mean reward of a step over 8 goals, 10 seeds: the 95 % interval of the lead over random tasks above "
        "0.03, and that over the mean state's above 0",
        holds=leads["lead over random"].low > 0.03 and leads["lead over mean state"].low > 0,
    )


@claim(
    "From a narrow log the conservative representation earns more than the plain one.",
    kind="headline",
    cost="slow",
    baseline="no penalty, all else the same",
    refuted=True,
)
def narrow_log() -> Finding:
    gains, values = [], {"conservative": 0.0, "plain": 0.0}
    for seed in SEEDS:
        log = moves(300, seed, along=0.5)
        found = {}
        for name, algorithm in (("conservative", made("values", WEIGHT)), ("plain", made())):
            policy, networks = learned(log, algorithm, seed)
            found[name] = mean_reward(policy, networks.modules["backward"], log, seed)
            values[name] += found[name] / len(SEEDS)
        gains.append(found["conservative"] - found["plain"])
    gain = t_interval(gains)
    return Finding(
        measured=values | {"difference": gain.estimate},
        intervals={"difference": (gain.low, gain.high)},
        criterion="mean reward of a step over 8 goals, 5 seeds: the difference's 95 % interval above 0",
        holds=gain.low > 0,
        note="In none of four counts of five seeds each does the interval exclude 0.",
    )


def cycle() -> tuple[Tensor, Tensor]:
    """Returns the gradient of the loss in F, and F, of a walk around 4 states that never ends, where B is 2 times the
    indicator of a state and F B is the exact density of the states to come, with regard to equal shares.

    Each state occurs `copies` times in the batch, so that a pair of two decisions is of one state in (copies - 1) /
    (4 copies - 1) cases, which nears a quarter.
    """
    states, copies, gamma = 4, 64, 0.5
    place = torch.arange(states * copies) % states
    after = (place + 1) % states
    B = 2 * torch.eye(states, dtype=torch.float64)
    steps = (torch.arange(states)[None] - place[:, None] - 1) % states  # until each state, after the first step
    density = states * gamma ** steps.double() / (1 - gamma**states)  # of times 0, n, 2n, ... after the first step
    f = (density @ B.inverse())[:, None].requires_grad_()
    nexts = states * gamma ** ((torch.arange(states)[None] - after[:, None] - 1) % states).double() / (1 - gamma**4)
    loss = ForwardBackwardLoss(gamma=gamma, orthonormal=0.0)
    slow = nexts @ B.inverse() @ B[after].T
    total = loss._representation(f, B[after], slow).mean()
    (slope,) = torch.autograd.grad(total, f)
    return slope * len(place), f.detach()


@claim(
    "The exact successor measure is where the loss of F is level, and half of it is not.",
    kind="identity",
    baseline="half the exact measure",
)
def successor_measure() -> Finding:
    slope, f = cycle()
    off = float(slope.abs().max())
    return Finding(
        measured={"largest slope": off, "mean |F|": float(f.abs().mean())},
        criterion="largest slope < 0.05 with 64 copies of each state, where the unit is a share of 1",
        holds=off < 0.05,
    )


@mutation("the discount is left out of the slow measure", kills=successor_measure)
def undiscounted(replace: Replace) -> None:
    right = ForwardBackwardLoss._representation

    def representation(self: ForwardBackwardLoss, f: Tensor, b: Tensor, slow: Tensor) -> Tensor:
        return right(self, f, b, slow / self.gamma)

    replace(ForwardBackwardLoss, "_representation", representation)


@mutation("the task is the mean state, whatever its reward", kills=rewards_afterwards)
def no_reward(replace: Replace) -> None:
    def task_of_rewards(backward: torch.nn.Module, observations: Tensor, rewards: Tensor) -> Tensor:
        return on_sphere(backward(observations).mean(0))

    replace(parts, "task_of_rewards", task_of_rewards)
    replace(problem, "task_of_rewards", task_of_rewards)
