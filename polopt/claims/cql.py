"""These programs measure what the paper of CQL claims."""

import torch
from torch import Tensor

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.transitions import cliff, learned_from, reward_at_the_cliff
from polopt.methods.cql import cql
from polopt.objectives import ConservativePenalty

SEEDS = range(41, 44)


def learned(alpha: float, seed: int, threshold: float | None = None) -> tuple[float, float, float]:
    """Returns the policy's reward, the critics' largest value of an action that is not logged, and their mean of the
    logged best one, where rewards are a within 0.2 of 0 and -1 beyond 0.25."""
    algorithm = cql(alpha=alpha, threshold=threshold, hidden=(32, 32)).but({"networks.1.network.initial": 0.01})
    policy, networks = learned_from(cliff(seed), algorithm, head="squashed_gaussian", steps=500, seed=seed)
    states = torch.linspace(-1, 1, 50)[:, None]
    with torch.no_grad():
        far = [networks.modules["critic"](states, torch.full((50, 1), a)).amin(-1).mean() for a in (0.5, 0.75, 1.0)]
        near = networks.modules["critic"](states, torch.full((50, 1), 0.15)).amin(-1).mean()
    return reward_at_the_cliff(policy), float(torch.stack(far).max()), float(near)


@claim(
    "It stays with the logged actions where the critic alone leads away from them.",
    kind="headline",
    cost="slow",
    baseline="alpha = 0: SAC on the same log",
)
def stays_with_the_log() -> Finding:
    own, free = ([learned(alpha, seed) for seed in SEEDS] for alpha in (1.0, 0.0))
    return Finding(
        measured={"least reward": min(r for r, *_ in own), "largest of SAC": max(r for r, *_ in free)},
        criterion="3 seeds: rewards > -0.1; of SAC all < -0.5",
        holds=min(r for r, *_ in own) > -0.1 and max(r for r, *_ in free) < -0.5,
    )


@claim(
    "Values of actions that are not logged are below those of logged ones.",
    kind="part",
    cost="slow",
    baseline="alpha = 0: SAC on the same log, whose values go on rising",
)
def conservative_values() -> Finding:
    own, free = ([learned(alpha, seed) for seed in SEEDS] for alpha in (1.0, 0.0))
    measured = {
        "largest gap": max(far - near for _, far, near in own),
        "least gap of SAC": min(far - near for _, far, near in free),
    }
    return Finding(
        measured=measured,
        criterion="3 seeds: the largest value at 0.5, 0.75 and 1 less that at 0.15 is < 0; of SAC > 0.1",
        holds=measured["largest gap"] < 0 and measured["least gap of SAC"] > 0.1,
    )


@mutation("the logged action is pushed down, and the others up", kills=stays_with_the_log)
def wrong_sign(replace: Replace) -> None:
    right = ConservativePenalty.gaps

    def gaps(self: ConservativePenalty, evaluation: object) -> Tensor:
        return -right(self, evaluation)  # type: ignore[arg-type]

    replace(ConservativePenalty, "gaps", gaps)
