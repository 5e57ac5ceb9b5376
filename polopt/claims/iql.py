"""These programs measure what the paper of IQL claims."""

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.transitions import Log, decisions, greedy_actions, learned_from
from polopt.methods.iql import iql
from polopt.objectives import ExpectileError

SEEDS = range(3)


def mixed_log(seed: int) -> Log:
    """Four of five actions are near -0.6, with reward 0, and one is near +0.6, with reward 1."""

    def act(s: Tensor, draw: torch.Generator) -> Tensor:
        good = torch.rand(len(s), generator=draw) < 0.2
        return torch.where(good, 0.6, -0.6) + 0.05 * torch.randn(len(s), generator=draw)

    return decisions(2000, seed, act, lambda s, a: (a > 0).float())


def mean_action(algorithm: Algorithm, seed: int) -> float:
    policy, _ = learned_from(mixed_log(seed), algorithm, head="squashed_gaussian", steps=300, seed=seed)
    return float(greedy_actions(policy, torch.linspace(-1, 1, 200)).mean())


def made(**settings: float) -> Algorithm:
    return iql(hidden=(32, 32), tau=0.05, **settings)  # type: ignore[arg-type]


@claim(
    "From a log of mostly bad actions it learns the good ones.",
    kind="headline",
    cost="slow",
    baseline="imitation of the log: beta = 0",
)
def better_than_the_log() -> Finding:
    own, imitation = ([mean_action(made(beta=beta), seed) for seed in SEEDS] for beta in (10.0, 0.0))
    return Finding(
        measured={"least greedy action": min(own), "largest of imitation": max(imitation)},
        criterion="3 seeds: every mean greedy action > 0.3; of imitation all < 0",
        holds=min(own) > 0.3 and max(imitation) < 0,
    )


def value(expectile: float, seed: int) -> float:
    """Returns the mean of V over the states."""
    _, networks = learned_from(
        mixed_log(seed), made(expectile=expectile), head="squashed_gaussian", steps=400, seed=seed
    )
    with torch.no_grad():
        return float(networks.modules["value"](torch.linspace(-1, 1, 200)[:, None]).mean())


@claim(
    "The value rises with the expectile, from the log's mean towards the best logged action's.",
    kind="part",
    cost="slow",
    baseline="expectile 1/2, the value of the logging policy",
)
def expectiles() -> Finding:
    """Of a reward that is 1 with probability p the expectile e is p e / (p e + (1 - p) (1 - e))."""
    measured = {f"{e}": sum(value(e, seed) for seed in SEEDS) / len(SEEDS) for e in (0.5, 0.9, 0.99)}
    exact = {f"{e}": 0.2 * e / (0.2 * e + 0.8 * (1 - e)) for e in (0.5, 0.9, 0.99)}
    off = {name: abs(measured[name] - exact[name]) for name in exact}
    return Finding(
        measured=measured | {"largest error": max(off.values())},
        criterion="within 0.1 of the exact expectiles 0.2, 0.692 and 0.961, and rising",
        holds=max(off.values()) < 0.1 and measured["0.5"] < measured["0.9"] < measured["0.99"],
    )


@mutation("too high predictions cost more, in the place of too low ones", kills=expectiles)
def other_side(replace: Replace) -> None:
    def forward(self: ExpectileError, difference: Tensor) -> Tensor:
        return torch.where(difference > 0, 1 - self.expectile, self.expectile) * difference.square()

    replace(ExpectileError, "forward", forward)
