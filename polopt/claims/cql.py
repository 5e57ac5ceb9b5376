"""These programs measure what the paper of CQL claims."""

import torch
from torch import Tensor

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.transitions import cliff, learned_from, reward_at_the_cliff
from polopt.methods.cql import cql
from polopt.objectives import ConservativePenalty, ConservativePrice

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


def gap_after(threshold: float, lr: float, seed: int) -> float:
    """Returns the mean gap between the integral and the logged action's value."""
    algorithm = cql(alpha=1.0, threshold=threshold, hidden=(32, 32)).but({"networks.2.lr": lr})
    log = cliff(seed)
    _, networks = learned_from(log, algorithm, head="squashed_gaussian", steps=600, seed=seed)
    states, actions = log["observation"], log["action"]
    grid = torch.linspace(-1, 1, 201)
    with torch.no_grad():
        q = networks.modules["critic"](states[:200, None].expand(-1, 201, -1), grid[None, :, None].expand(200, -1, 1))
        integral = torch.trapezoid(q.exp(), grid, dim=1).log()
        return float((integral - networks.modules["critic"](states[:200], actions[:200])).mean())


@claim(
    "The learned price brings the gap to the threshold.",
    kind="part",
    cost="slow",
    baseline="a price of 1 throughout",
)
def threshold_is_met() -> Finding:
    """The penalty's sum is over 3 N draws, three times the integral where the policy is near uniform on it."""
    own = {t: [gap_after(t, 0.03, seed) for seed in SEEDS[:2]] for t in (0.0, 1.5)}
    fixed = {t: [gap_after(t, 1e-12, seed) for seed in SEEDS[:2]] for t in (0.0, 1.5)}
    moved = [b - a for a, b in zip(own[0.0], own[1.5], strict=True)]
    still = [abs(b - a) for a, b in zip(fixed[0.0], fixed[1.5], strict=True)]
    return Finding(
        measured={"least change with the threshold": min(moved), "largest of a fixed price": max(still)},
        criterion="2 seeds, thresholds 0 and 1.5: the gap differs by > 0.7; with a fixed price by < 0.1",
        holds=min(moved) > 0.7 and max(still) < 0.1,
    )


@mutation("the price moves the wrong way", kills=threshold_is_met)
def wrong_way(replace: Replace) -> None:
    right = ConservativePrice.forward

    def forward(self: ConservativePrice, experience: object, evaluation: object) -> object:
        loss, metrics = right(self, experience, evaluation)  # type: ignore[arg-type]
        return type(right(self, experience, evaluation))(-loss, metrics)  # type: ignore[arg-type]

    replace(ConservativePrice, "forward", forward)
