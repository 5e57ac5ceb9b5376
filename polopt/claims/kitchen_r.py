"""These programs measure what evaluating a planner and a controller together shows that neither of them shows alone."""

import numpy as np

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.measured import hierarchy
from polopt.methods.kitchen_r import HierarchyEvaluation, kitchen_r
from polopt.metrics import Interval, wilson

REPEATS, EPISODES = 40, 500
ALIKE = {"plan": (0.75,), "skill": (0.8,)}
# Scenes of two kinds, easy and hard; on average as above.
HARD_SCENES = {"plan": (0.98, 0.52), "skill": (0.98, 0.62)}


def flagged(x: Interval) -> bool:
    return not x.low <= 0 <= x.high


def measured(name: str, seed: int, **settings: tuple[float, ...] | float) -> list[Interval]:
    """Returns an interval of each of 40 evaluations."""
    metric = kitchen_r(resamples=100)
    data = [hierarchy(REPEATS * seed + i, episodes=EPISODES, **settings) for i in range(REPEATS)]  # type: ignore[arg-type]
    return [metric(each).intervals[name] for each in data]


@claim(
    "Where hard scenes spoil plans and skills alike, both together succeed at another rate than the product of their "
    "own rates, and it is shown; where failures are independent they succeed at that rate.",
    kind="headline",
    baseline="independent failures with the same rates",
    cost="slow",
)
def correlated_failures() -> Finding:
    name = "joint, right plan - product"
    alike, hard = (measured(name, seed, lucky=0.0, **s) for seed, s in ((1, ALIKE), (2, HARD_SCENES)))  # type: ignore[arg-type]
    shares = {
        "flagged, independent": wilson(sum(map(flagged, alike)), REPEATS),
        "flagged, hard scenes": wilson(sum(map(flagged, hard)), REPEATS),
    }
    return Finding(
        measured={
            **{key: x.estimate for key, x in shares.items()},
            "difference, independent": float(np.mean([x.estimate for x in alike])),
            "difference, hard scenes": float(np.mean([x.estimate for x in hard])),
        },
        criterion="of 40 evaluations with 500 episodes in each mode at most 0.2 are flagged if independent, and 0.8 "
        "or more if not",
        holds=shares["flagged, independent"].estimate <= 0.2 and shares["flagged, hard scenes"].estimate >= 0.8,
        intervals={key: (x.low, x.high) for key, x in shares.items()},
    )


@claim(
    "The counts of the failures add up to the joint episodes, and most of them are of the level that is worse.",
    kind="identity",
    baseline="a hierarchy whose other level is the worse one",
)
def attribution() -> Finding:
    off, right = 0.0, 0
    for i in range(REPEATS):
        for worse, rates in (("plan wrong", ((0.4,), (0.99,))), ("control failed", ((0.97,), (0.6,)))):
            plan, skill = rates
            values = kitchen_r(resamples=20)(hierarchy(i, episodes=40, plan=plan, skill=skill)).values
            kinds = {name: values[name] for name in ("succeeded", "plan wrong", "control failed", "lucky")}
            off = max(off, abs(sum(kinds.values()) - 40))
            other = "control failed" if worse == "plan wrong" else "plan wrong"
            right += kinds[worse] > kinds[other]
    return Finding(
        measured={"distance of the sum": off, "blamed on the worse level": right / (2 * REPEATS)},
        criterion="0, and 0.95 or more of 80 evaluations with 40 episodes",
        holds=off == 0 and right >= 0.95 * 2 * REPEATS,
        intervals={"blamed on the worse level": (wilson(right, 2 * REPEATS).low, wilson(right, 2 * REPEATS).high)},
    )


@claim(
    "Goals that wrong plans reach are no sign of correlated failures, and are not taken for one.",
    kind="ours",
    baseline="the rate of all reached goals in the place of those by a right plan",
    cost="slow",
)
def lucky_plans() -> Finding:
    own = naive = 0
    for i in range(100):
        data = hierarchy(300 + i, episodes=300, lucky=0.7, plan=(0.7,), skill=(0.85,))
        found = kitchen_r(resamples=100)(data).intervals
        own += flagged(found["joint, right plan - product"])
        shift = found["joint"].estimate - found["joint, right plan"].estimate
        naive += found["joint, right plan - product"].low + shift > 0
    shares = {"by a right plan": wilson(own, 100), "all reached goals": wilson(naive, 100)}
    return Finding(
        measured={name: x.estimate for name, x in shares.items()},
        criterion="flagged in at most 0.15 of 100 evaluations of 300 episodes; by the rate of all goals in 0.8 or more",
        holds=shares["by a right plan"].estimate <= 0.15 and shares["all reached goals"].estimate >= 0.8,
        intervals={name: (x.low, x.high) for name, x in shares.items()},
    )


@claim(
    "Skills that fail together are told from a planner and a controller that do: each has a quotient of its own.",
    kind="ours",
    baseline="the other quotient",
    cost="slow",
)
def which_correlation() -> Finding:
    quotients = ("whole plan / skills", "joint / levels")
    settings = {"skills": {"plan": (0.8,), "skill": (0.98, 0.6)}, "levels": {"plan": (0.98, 0.3), "skill": (0.97, 0.6)}}
    shares = {}
    for seed, (what, of) in enumerate(settings.items(), start=5):
        for name in quotients:
            above = sum(x.low > 1 for x in measured(name, seed, lucky=0.0, **of))  # type: ignore[arg-type]
            shares[f"{what}: {name}"] = wilson(above, REPEATS)
    clear = [shares["skills: whole plan / skills"], shares["levels: joint / levels"]]
    return Finding(
        measured={name: x.estimate for name, x in shares.items()},
        criterion="of skills in scenes of two kinds, with plans that do not know them, the first quotient is above 1 "
        "in 0.8 or more and the second in at most 0.2; of plans and skills in such scenes the second in 0.8 or more",
        holds=clear[0].estimate >= 0.8
        and clear[1].estimate >= 0.8
        and shares["skills: joint / levels"].estimate <= 0.2,
        intervals={name: (x.low, x.high) for name, x in shares.items()},
    )


@mutation("The product has one skill, however many a plan has.", kills=correlated_failures)
def one_skill(replace: Replace) -> None:
    chain = HierarchyEvaluation.chain
    replace(HierarchyEvaluation, "chain", staticmethod(lambda skill, steps, counts: chain(skill, steps**0, counts)))


@mutation("Every failure is the controller's.", kills=attribution)
def blames_control(replace: Replace) -> None:
    kinds = HierarchyEvaluation.attribution
    replace(HierarchyEvaluation, "attribution", staticmethod(lambda plan, success: kinds(plan | ~success, success)))


@mutation("Lucky episodes count as right plans.", kills=lucky_plans)
def lucky_is_right(replace: Replace) -> None:
    rates = HierarchyEvaluation.rates

    def with_luck(self: HierarchyEvaluation, data: object, counts: np.ndarray) -> dict[str, np.ndarray]:
        found = rates(self, data, counts)  # type: ignore[arg-type]
        off = found["joint"] - found["joint, right plan"]
        return {**found, "joint, right plan - product": found["joint, right plan - product"] + off}

    replace(HierarchyEvaluation, "rates", with_luck)
