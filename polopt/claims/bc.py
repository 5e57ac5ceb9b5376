"""This program measures what imitation of logged actions is."""

import dataclasses

import torch
from torch import Tensor

from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.lab.transitions import decisions, greedy_actions, learned_from
from polopt.methods.bc import bc
from polopt.objectives import ActionRegression

SEEDS = range(41, 44)


def distance(sign: float, seed: int) -> float:
    """Returns the mean distance of the greedy actions from the log's mean action, s / 2."""

    def act(s: Tensor, draw: torch.Generator) -> Tensor:
        return (s / 2 + 0.3 * torch.randn(len(s), generator=draw)).clamp(-1, 1)

    log = decisions(2000, seed, act, lambda s, a: sign * a)
    policy, _ = learned_from(log, bc(loss="squared"), head="deterministic", steps=300, seed=seed)
    states = torch.linspace(-1, 1, 200)
    return float((greedy_actions(policy, states) - states / 2).abs().mean())


@claim(
    "It plays the mean logged action of each state, whatever the reward.",
    kind="headline",
    cost="slow",
    baseline="the mean action of the whole log",
)
def mean_actions() -> Finding:
    own = [distance(sign, seed) for sign in (1.0, -1.0) for seed in SEEDS]
    return Finding(
        measured={"largest distance": max(own), "of the log's mean": 0.25},
        criterion="3 seeds, rewards a and -a: the mean distance from s / 2 < 0.06; of the constant 0 it is 0.25",
        holds=max(own) < 0.06,
    )


@mutation("the actions of other states are imitated", kills=mean_actions)
def other_rows(replace: Replace) -> None:
    right = ActionRegression.forward

    def forward(self: ActionRegression, experience: Experience, evaluation: Evaluation) -> Loss:
        action = evaluation.extras["network.action"].roll(1, 0)
        return right(
            self, experience, dataclasses.replace(evaluation, extras={**evaluation.extras, "network.action": action})
        )

    replace(ActionRegression, "forward", forward)
