"""These programs measure what the paper of TD3+BC claims."""

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab.transitions import Log, decisions, greedy_actions, learned_from
from polopt.methods.td3 import td3
from polopt.methods.td3_bc import td3_bc
from polopt.objectives import ProposedActionError

SEEDS = range(3)


def slope(seed: int) -> Log:
    """Actions are within 0.2 of 0, with reward a; beyond it the reward is -1, which the log does not show."""

    def act(s: Tensor, draw: torch.Generator) -> Tensor:
        return 0.4 * torch.rand(len(s), generator=draw) - 0.2

    return decisions(2000, seed, act, lambda s, a: torch.where(a.abs() > 0.25, -1.0, a))


def reward_of(algorithm: Algorithm, seed: int) -> float:
    policy, _ = learned_from(slope(seed), algorithm, head="deterministic", steps=400, seed=seed)
    action = greedy_actions(policy, torch.linspace(-1, 1, 200))
    return float(torch.where(action.abs() > 0.25, -1.0, action).mean())


def offline_td3() -> Algorithm:
    return td3(hidden=(32, 32), tau=0.05)


@claim(
    "It stays near the logged actions where the critic alone leads away from them, and is better than their mean.",
    kind="headline",
    cost="slow",
    baseline="TD3 on the same log, and imitation of it",
)
def stays_near_the_log() -> Finding:
    own = [reward_of(td3_bc(alpha=0.01, hidden=(32, 32), tau=0.05), seed) for seed in SEEDS]
    free = [reward_of(offline_td3(), seed) for seed in SEEDS]
    imitation = [reward_of(td3_bc(alpha=1e-6, hidden=(32, 32), tau=0.05), seed) for seed in SEEDS]
    return Finding(
        measured={"least reward": min(own), "largest of TD3": max(free), "largest of imitation": max(imitation)},
        criterion="3 seeds: rewards > 0.05; of TD3 all < -0.5; of imitation all < 0.05",
        holds=min(own) > 0.05 and max(free) < -0.5 and max(imitation) < 0.05,
    )


@mutation("no price on the distance from the log", kills=stays_near_the_log)
def no_price(replace: Replace) -> None:
    def forward(self: ProposedActionError, experience: Experience, evaluation: Evaluation) -> Tensor:
        return torch.zeros_like(evaluation.logp)

    replace(ProposedActionError, "forward", forward)
