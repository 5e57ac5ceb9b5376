"""These programs measure what the paper of AWAC claims."""

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab.transitions import Log, decisions, greedy_actions, learned_from
from polopt.methods.awac import awac
from polopt.objectives import NetworkAdvantageWeight

SEEDS = range(3)


def two_sides(seed: int) -> Log:
    """Seven of ten actions are on the side of the state's sign, with reward 0, the others on the other one, with reward
    1."""

    def act(s: Tensor, draw: torch.Generator) -> Tensor:
        good = torch.rand(len(s), generator=draw) < 0.3
        side = torch.where(good, -s.sign(), s.sign())
        return 0.6 * side + 0.05 * torch.randn(len(s), generator=draw)

    return decisions(2000, seed, act, lambda s, a: (a * s < 0).float())


def share_of_good(algorithm: Algorithm, seed: int) -> float:
    policy, _ = learned_from(two_sides(seed), algorithm, head="squashed_gaussian", steps=300, seed=seed)
    states = torch.linspace(-1, 1, 200)
    return float((greedy_actions(policy, states) * states < 0).float().mean())


def made(temperature: float) -> Algorithm:
    return awac(hidden=(32, 32), tau=0.05, temperature=temperature)


@claim(
    "From a log of mostly bad actions it learns the good ones, and less so the higher its temperature is.",
    kind="headline",
    cost="slow",
    baseline="a temperature so high that all weights are 1: imitation",
)
def better_than_the_log() -> Finding:
    own, imitation = ([share_of_good(made(t), seed) for seed in SEEDS] for t in (0.2, 1e6))
    return Finding(
        measured={"least share of good actions": min(own), "largest of imitation": max(imitation)},
        criterion="3 seeds: greedy actions are good in > 0.8 of the states; of imitation in < 0.2",
        holds=min(own) > 0.8 and max(imitation) < 0.2,
    )


@mutation("the advantage has the wrong sign", kills=better_than_the_log)
def wrong_sign(replace: Replace) -> None:
    before = NetworkAdvantageWeight.forward

    def forward(self: NetworkAdvantageWeight, experience: Experience, evaluation: Evaluation) -> Tensor:
        return (1 / before(self, experience, evaluation)).clamp(max=self.cap)

    replace(NetworkAdvantageWeight, "forward", forward)
