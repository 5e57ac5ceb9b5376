"""These programs measure what a release gate by bounds promises."""

from __future__ import annotations

import numpy as np

from polopt.claim import Finding, Replace, claim, mutation
from polopt.methods.tai_sfma import tai_sfma
from polopt.metrics import MeasuredScore, Requirement, clopper_pearson, requirements, t_interval
from polopt.metrics.requirements import GatedRequirements

EVALUATIONS, THRESHOLD, SHORT = 2000, 0.9, 0.001
TRIALS = 500


def released(scores: list[list[MeasuredScore]], level: float, corrected: bool = True) -> float:
    """Returns the share of evaluations, each with a score for every requirement of 0.9, that ship."""
    asked = [
        Requirement(attribute=f"attribute {i}", metric="pass@1", op=">=", threshold=THRESHOLD, level=level)
        for i in range(len(scores[0]))
    ]
    metric = tai_sfma(corrected=corrected)
    return float(np.mean([metric(GatedRequirements(asked, row)).values["ship"] for row in scores]))


def counted(rate: float, seed: int, number: int = 1, evaluations: int = EVALUATIONS) -> list[list[MeasuredScore]]:
    """Returns simulated evaluations of policies that solve each of 500 problems with this probability."""
    draw = np.random.default_rng(seed).binomial(TRIALS, rate, (evaluations, number))
    return [[MeasuredScore.of_counts(int(s), TRIALS) for s in row] for row in draw]


def averaged(rate: float, seed: int) -> list[list[MeasuredScore]]:
    """Returns simulated evaluations with 4 samples for each of 500 problems of different difficulty, as intervals."""
    draw = np.random.default_rng(seed)
    solved = draw.binomial(4, draw.beta(9 * rate, 9 * (1 - rate), (EVALUATIONS, TRIALS))) / 4
    found = [t_interval(row) for row in solved]
    return [[MeasuredScore(x.estimate, x.low, x.high, x.level, x.n)] for x in found]


@claim(
    "A policy just below its threshold is released in at most 5 % of evaluations, where its mean would release it in "
    "about half.",
    kind="headline",
    baseline="the mean itself, a level of 0.5",
)
def false_releases() -> Finding:
    below = {"counts": counted(THRESHOLD - SHORT, 0), "intervals": averaged(THRESHOLD - SHORT, 1)}
    bound = {name: released(scores, 0.95) for name, scores in below.items()}
    mean = {name: released(scores, 0.5) for name, scores in below.items()}
    good = released(counted(THRESHOLD + 0.04, 2), 0.95)
    ends = {f"released, {n}": clopper_pearson(round(x * EVALUATIONS), EVALUATIONS) for n, x in bound.items()}
    return Finding(
        measured={
            **{f"released, {name}": x for name, x in bound.items()},
            **{f"by the mean, {name}": x for name, x in mean.items()},
            "a good one released": good,
        },
        criterion="of 2,000 evaluations at most 6 % are released, the mean releases 40 to 60 %, and a policy 4 points "
        "above the threshold is released in more than 80 %",
        holds=max(bound.values()) <= 0.06 and all(0.4 < x < 0.6 for x in mean.values()) and good > 0.8,
        intervals={name: (x.low, x.high) for name, x in ends.items()},
        note="The true rate is 0.899, the threshold 0.9, with 500 problems: one answer each, or four answers to "
        "problems of different difficulty. A rate of 5 % is measured as more than 6 % once in fifty such simulations.",
    )


@claim(
    "Of twenty requirements that are all missed one is called a pass in at most 5 % of evaluations, in half of them "
    "without the correction.",
    kind="part",
    baseline="each bound at its own level",
)
def wrong_passes() -> Finding:
    number = 20
    asked = [
        Requirement(attribute=f"attribute {i}", metric="pass@1", op=">=", threshold=THRESHOLD) for i in range(number)
    ]
    rows = [GatedRequirements(asked, row) for row in counted(THRESHOLD - SHORT, 3, number, evaluations=600)]
    any_pass = {
        corrected: float(np.mean([tai_sfma(corrected=corrected)(row).values["passed"] > 0 for row in rows]))
        for corrected in (True, False)
    }
    end = clopper_pearson(round(any_pass[True] * len(rows)), len(rows))
    return Finding(
        measured={"a wrong pass": any_pass[True], "without the correction": any_pass[False]},
        criterion="at most 7 % of 600 evaluations; more than 30 % without the correction",
        holds=any_pass[True] <= 0.07 and any_pass[False] > 0.3,
        intervals={"a wrong pass": (end.low, end.high)},
        note="A rate of 5 % is measured as more than 7 % once in eighty such simulations.",
    )


@mutation("The mean is compared with the threshold.", kills=false_releases)
def compares_means(replace: Replace) -> None:
    replace(MeasuredScore, "p_value", lambda self, op, threshold: 0.0 if self.estimate >= threshold else 1.0)


@mutation("The end of the interval on the other side is compared.", kills=false_releases)
def other_end(replace: Replace) -> None:
    tail = MeasuredScore.p_value

    def swapped(self: MeasuredScore, op: str, threshold: float) -> float:
        return 1 - tail(self, op, threshold)

    replace(MeasuredScore, "p_value", swapped)


@mutation("Every requirement keeps its own level.", kills=wrong_passes)
def no_correction(replace: Replace) -> None:
    replace(requirements, "holm", lambda p, level: [x <= level for x in p])
