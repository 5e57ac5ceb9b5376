"""These programs measure what is claimed of revision over several rounds, on a simulator whose rates are known."""

import numpy as np

from polopt.claim import Finding, Replace, claim, mutation
from polopt.methods import selfcorrect_gen_vs_mc as paper
from polopt.metrics import Measured, RevisionRounds

ITEMS, ROUNDS, FIRST = 1000, 5, 0.5


def simulated(seed: int, keep: float, fix: float, decay: float = 1.0, items: int = ITEMS) -> RevisionRounds:
    """Returns chains of answers that stay right with probability `keep`, and become right with probability `fix`, times
    `decay` for each round before. A wrong answer that stays wrong is another one half of the time."""
    draw = np.random.default_rng(seed)
    right = draw.random(items) < FIRST
    answer = np.where(right, 0, draw.integers(1, 4, items))
    answers = [answer]
    for k in range(ROUNDS):
        u, moved = draw.random(items), draw.random(items) < 0.5
        after = np.where(answer == 0, u < keep, u < fix * decay**k)
        other = np.where((answer == 0) | moved, (answer + draw.integers(0, 2, items)) % 3 + 1, answer)
        answer = np.where(after, 0, other)
        answers.append(answer)
    table = np.stack(answers, 1)
    names = np.repeat([f"{i:04}" for i in range(items)], ROUNDS + 1)
    rounds = np.tile(np.arange(ROUNDS + 1), items)
    return RevisionRounds(names, rounds, table.ravel() == 0, table.ravel(), mode=["free"] * len(names))


def measured(data: RevisionRounds, stop: int = 2) -> Measured:
    return paper.selfcorrect_gen_vs_mc(stop=stop, resamples=100)(data)


@claim(
    "It recovers the rates of drift and of repair in every round, and the accuracy that revision moves to.",
    kind="theory",
    baseline="the accuracies of the rounds alone, from which only the sum of both flows follows",
)
def recovers() -> Finding:
    worst, inside = 0.0, []
    for seed, (keep, fix, decay) in enumerate([(0.99, 0.05, 1.0), (0.92, 0.25, 1.0)], 100):
        found = measured(simulated(seed, keep, fix, decay, 3000))
        for k in range(1, ROUNDS + 1):
            truth = {f"free, drift@{k}": 1 - keep, f"free, repair@{k}": fix * decay ** (k - 1)}
            worst = max(worst, *(abs(found.values[name] - value) for name, value in truth.items()))
            inside += [
                found.intervals[name].low <= value <= found.intervals[name].high for name, value in truth.items()
            ]
    point = found.values["free, fixed point"]
    exact = 0.25 / (1 - 0.92 + 0.25)
    return Finding(
        measured={
            "largest error of a rate": worst,
            "fixed point": point,
            "exact": exact,
            "covered": float(np.mean(inside)),
        },
        criterion="3,000 items and 5 rounds: errors of rates of at most 0.05, 95 % intervals that hold the rate in at "
        "least 16 of 20 cases, and an error of the fixed point of at most 0.02",
        holds=worst <= 0.05 and sum(inside) >= 16 and abs(point - exact) <= 0.02,
        intervals={
            "fixed point": (found.intervals["free, fixed point"].low, found.intervals["free, fixed point"].high)
        },
    )


@claim(
    "The accuracy of a round is that of the one before times CL, plus the rest times CS.",
    kind="identity",
    baseline="none: an identity",
)
def recursion() -> Finding:
    values = measured(simulated(107, 0.92, 0.25, 0.7)).values
    accuracy = [values[f"free, accuracy@{k}"] for k in range(ROUNDS + 1)]
    errors = [
        accuracy[k]
        - accuracy[k - 1] * (1 - values[f"free, drift@{k}"])
        - (1 - accuracy[k - 1]) * values[f"free, repair@{k}"]
        for k in range(1, ROUNDS + 1)
    ]
    worst = float(np.abs(errors).max())
    return Finding({"largest error": worst}, "at most 1e-12 in five rounds", worst <= 1e-12)


@claim(
    "Free answers that drift are better stopped at the first answer that is repeated, or at round 2, than revised five "
    "times.",
    kind="part",
    baseline="all five rounds",
)
def stopping_helps_what_drifts() -> Finding:
    gains = []
    for seed in range(5):
        values = measured(simulated(110 + seed, 0.92, 0.25, 0.5)).values
        gains.append(values["free, stopped accuracy"] - values["free, accuracy@5"])
    return Finding(
        measured={"gain": float(np.mean(gains)), "least gain": min(gains)},
        criterion="the stopped accuracy is higher by more than 0.02 on each of 5 seeds of 1,000 items",
        holds=min(gains) > 0.02,
        note="A right answer stays right with probability 0.92; a wrong one is repaired with probability 0.25 in the "
        "first round and half as often in each further one.",
    )


@claim(
    "The same rule costs choices nothing, which hardly drift.",
    kind="part",
    baseline="all five rounds",
    refuted=True,
)
def stopping_costs_choices_nothing() -> Finding:
    losses = []
    for seed in range(5):
        values = measured(simulated(120 + seed, 0.99, 0.05)).values
        losses.append(values["free, accuracy@5"] - values["free, stopped accuracy"])
    return Finding(
        measured={"loss": float(np.mean(losses)), "largest loss": max(losses)},
        criterion="the stopped accuracy is lower by at most 0.01 on each of 5 seeds of 1,000 items",
        holds=max(losses) <= 0.01,
        note="A right answer stays right with probability 0.99 and a wrong one is repaired with probability 0.05, in "
        "every round: the accuracy is still below its fixed point, 0.83, after five rounds: each round left out "
        "costs repairs. What stays the same is no sign that nothing is left to gain.",
    )


@claim(
    "On all items a mode that begins better seems to lose less; on items where both begin alike the modes are equal.",
    kind="ours",
    baseline="drift and repair on all items",
)
def matched_items() -> Finding:
    items = 4000
    hard = np.random.default_rng(230).random(items) < 0.5
    tables = {}
    for mode, first in (("choices", 0.9), ("free", 0.5)):
        draw = np.random.default_rng(231 + (mode == "free"))
        right = draw.random(items) < np.where(hard, first / 2, first)
        stays, fixed = np.where(hard, 0.6, 0.95), np.where(hard, 0.05, 0.5)
        after = np.where(right, draw.random(items) < stays, draw.random(items) < fixed)
        tables[mode] = np.stack([right, after], 1)
    names = [f"{i:04}" for i in range(items)]
    data = RevisionRounds(
        np.tile(np.repeat(names, 2), 2),
        np.tile([0, 1], 2 * items),
        np.concatenate([table.ravel() for table in tables.values()]),
        mode=np.repeat(list(tables), 2 * items),
    )
    found = measured(data)
    apart = found.values["choices, CS"] - found.values["free, CS"]
    alike = found.intervals["choices less free, CS on matched items"]
    return Finding(
        measured={"difference of CS": apart, "on matched items": alike.estimate},
        criterion="each item has the same rates in both modes; CS differs by more than 0.08 on all items, and by less "
        "than 0.04 on matched ones",
        holds=abs(apart) > 0.08 and abs(alike.estimate) < 0.04,
        intervals={"on matched items": (alike.low, alike.high)},
    )


@mutation("Drift counts among all answers.", kills=recursion)
def drift_among_all(replace: Replace) -> None:
    share = paper.RevisionDynamics.share

    def loose(self: paper.RevisionDynamics, chains: paper.RevisionChains, x: np.ndarray, among: np.ndarray) -> object:
        if among.mean() < 0.9:
            x, among = np.where(among, x, 0.0), np.ones_like(among)
        return share(self, chains, x, among)

    replace(paper.RevisionDynamics, "share", loose)


@mutation("The fixed point leaves out what is repaired below the line.", kills=recovers)
def half_a_fixed_point(replace: Replace) -> None:
    replace(paper, "fixed_point", lambda each: each[..., 2] / each[..., 3])


@mutation("The rule stops at the last round.", kills=stopping_helps_what_drifts)
def never_stops(replace: Replace) -> None:
    replace(paper, "stop_rounds", lambda chains, most: (~np.isnan(chains.correct)).sum(1) - 1)


@mutation("Items are matched whatever they begin with.", kills=matched_items)
def all_items(replace: Replace) -> None:
    units = paper._units
    replace(paper, "_units", lambda item, x: (units(item, x)[0], [0.0] * len(units(item, x)[0])))
