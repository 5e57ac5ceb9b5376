"""This program measures what the paper of DDPG claims."""

import torch

from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.lab.transitions import decisions, greedy_actions, learned_from
from polopt.methods.ddpg import ddpg
from polopt.objectives import ValueAscent

SEEDS = range(41, 44)


def distance(steps: int, seed: int) -> float:
    """Returns the mean distance of the greedy actions from the best ones, where the reward is -4 (a - s / 2)^2 and
    logged actions are uniform."""
    log = decisions(
        2000,
        seed,
        lambda s, draw: 2 * torch.rand(len(s), generator=draw) - 1,
        lambda s, a: -4 * (a - s / 2).square(),
    )
    policy, _ = learned_from(log, ddpg(hidden=(32, 32)), head="deterministic", steps=steps, seed=seed)
    states = torch.linspace(-1, 1, 200)
    return float((greedy_actions(policy, states) - states / 2).abs().mean())


@claim(
    "From the actions of another policy it learns the best ones of a continuum.",
    kind="headline",
    cost="slow",
    baseline="the policy before it learns",
)
def best_actions() -> Finding:
    own, before = ([distance(steps, seed) for seed in SEEDS] for steps in (500, 0))
    return Finding(
        measured={"largest distance": max(own), "least before": min(before)},
        criterion="3 seeds: the mean distance from the best actions < 0.08, before > 0.2",
        holds=max(own) < 0.08 and min(before) > 0.2,
    )


@mutation("the policy descends the critic", kills=best_actions)
def descends(replace: Replace) -> None:
    right = ValueAscent.forward

    def forward(self: ValueAscent, experience: Experience, evaluation: Evaluation) -> Loss:
        loss, metrics = right(self, experience, evaluation)
        return Loss(-loss, metrics)

    replace(ValueAscent, "forward", forward)
