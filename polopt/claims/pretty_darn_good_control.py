"""These programs measure what the paper of pretty darn good control claims."""

from typing import Any

import numpy as np

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.effects import More, effect
from polopt.lab.stepping import policy_for, returns_of, trained
from polopt.methods.pretty_darn_good_control import pretty_darn_good_control
from polopt.metrics import paired_difference
from polopt.worlds.control import (
    CautionaryRule,
    ConstantEscapement,
    ConstantMortality,
    ControlRule,
    Fishery,
    FisheryOptimum,
    TunedRule,
    episode_returns,
    fishery,
)

SEEDS = range(51, 55)
EPISODES = 256


def mortality(fisheries: int = 1) -> ControlRule:
    """Returns constant mortality, to be tuned."""
    rule = ConstantMortality(fisheries=fisheries)
    return TunedRule(rule=rule, low={"fraction": 0.0}, high={"fraction": 0.5}, points=26)


def escapement(fisheries: int = 1) -> ControlRule:
    """Returns constant escapement, to be tuned."""
    rule = ConstantEscapement(fisheries=fisheries)
    return TunedRule(rule=rule, low={"escapement": 0.2}, high={"escapement": 1.0}, points=33)


def cautionary(fisheries: int = 1) -> ControlRule:
    """Returns the cautionary rule, to be tuned."""
    rule = CautionaryRule(fisheries=fisheries)
    low, high = {"fraction": 0.1, "enough": 0.2}, {"fraction": 0.6, "enough": 1.2}
    return TunedRule(rule=rule, low=low, high=high, points=6)


@claim(
    "With one species the best constant escapement is as good as the optimum, and the best constant mortality is not.",
    kind="theory",
    baseline="constant mortality, tuned in the same way",
)
def escapement_is_optimal() -> Finding:
    world = Fishery(EPISODES, species=1, fisheries=1)
    rules = {"optimum": FisheryOptimum(), "escapement": escapement(), "mortality": mortality()}
    played = {}
    for name, rule in rules.items():
        ready = rule.prepare(world)
        played[name] = np.concatenate([episode_returns(world, ready, seed).numpy() for seed in SEEDS])
    best = float(played["optimum"].mean())
    gap = {n: paired_difference(played["optimum"], played[n]) for n in ("escapement", "mortality")}
    found = {f"optimum minus {name}, share": interval.estimate / best for name, interval in gap.items()}
    ends = {f"optimum minus {name}, share": (i.low / best, i.high / best) for name, i in gap.items()}
    equal, behind = ends["optimum minus escapement, share"], ends["optimum minus mortality, share"]
    return Finding(
        measured={"return of the optimum": best, **found},
        intervals=ends,
        criterion="1,024 episodes of the same random numbers: |optimum - escapement| < 0.3 % of the return by its "
        "interval, optimum - mortality > 0.5 % by its interval",
        holds=max(map(abs, equal)) < 0.003 and behind[0] > 0.005,
    )


@effect(
    "On the whole model of three species, two of them harvested, PPO yields more than any tuned classical rule and "
    "than the optimum of a model of one species.",
    kind="headline",
    method=lambda: None,
    controls={
        "constant mortality": lambda: mortality(2),
        "constant escapement": lambda: escapement(2),
        "cautionary rule": lambda: cautionary(2),
        "one-species optimum": lambda: FisheryOptimum(),
    },
    criteria=[More("mean return", times=1.03)],
    seeds=len(SEEDS),
    cost="slow",
    note="Rules are tuned on a grid in the environment; PPO's step size, 0.002, is one of a few that were tried by "
    "hand on seeds 0 to 2. With 90 batches instead of 120, on seeds 41 to 44, it was 1.00 times constant mortality, "
    "and reached 1.03 on two of them. Returns are means over 256 episodes that neither has seen.",
)
def more_than_rules(rule: ControlRule | None, *, seed: int) -> dict[str, float]:
    seed += SEEDS[0]
    tried = Fishery(EPISODES, fisheries=2)
    if rule is not None:
        return {"mean return": float(episode_returns(tried, rule.prepare(tried), 1000 + seed).mean())}
    world = Fishery(128, fisheries=2)
    policy = policy_for(world, seed=seed, head="beta", normalise=True, hidden=(32, 32))
    algorithm = pretty_darn_good_control(lam=0.9, steps=25)
    trained(world, algorithm, policy, steps=120, lr=2e-3, seed=seed)
    return {"mean return": float(returns_of(tried, policy, seed=1000 + seed).mean())}


@mutation("The optimum's model has no predation, and twice the growth.", kills=escapement_is_optimal)
def other_growth(replace: Replace) -> None:
    right = fishery.solve_one_species

    def wrong(r: float, K: float, v0: float, beta: float, *rest: Any) -> Any:
        return right(2 * r, 2 * K, v0, 0.0, *rest)

    replace(fishery, "solve_one_species", wrong)
