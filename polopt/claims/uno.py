"""These programs measure what the paper of universal off-policy evaluation claims."""

import numpy as np

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.effects import Less, effect
from polopt.lab.logged import LoggedDecisions, small_problem
from polopt.methods.uno import uno
from polopt.methods.wis import wis
from polopt.metrics import LoggedMetric, ReturnDistribution, WeightLimit
from polopt.metrics.weight_limits import ClippedWeights

STATISTICS = ("variance", "quantile 0.25", "cvar 0.25")


def exact(gain: np.ndarray, mass: np.ndarray) -> dict[str, float]:
    """Returns the statistics of a distribution of finitely many returns, from their definitions."""
    order = np.argsort(gain)
    gain, mass = gain[order], mass[order] / mass.sum()
    mean = float(mass @ gain)
    below, left = 0.0, 0.25
    for x, p in zip(gain, mass, strict=True):
        below += min(p, left) * x
        left -= min(p, left)
    quantile = next(float(x) for x, total in zip(gain, np.cumsum(mass), strict=True) if total >= 0.25 - 1e-12)
    return {
        "mean": mean,
        "variance": float(mass @ (gain - mean) ** 2),
        "quantile 0.25": quantile,
        "cvar 0.25": below / 0.25,
    }


@effect(
    "The variance, the lower quartile and the mean of the worst quarter of the target policy's returns come out nearer "
    "than they are in the log.",
    kind="headline",
    method=lambda: uno(at=(0.25,), resamples=1),
    # Weights that are all clipped to one size are none.
    controls={"the log itself": lambda: ReturnDistribution(at=(0.25,), resamples=1, limit=ClippedWeights(most=1e-9))},
    criteria=[Less("error", times=0.5)],
    seeds=10,
    note="The sum of the three absolute errors, mean over 30 logs of 4,000 episodes of up to three decisions.",
)
def errs_less(metric: LoggedMetric, *, seed: int) -> dict[str, float]:
    problem, behaviour, target = small_problem(seed)
    table, chance = problem.all_episodes(behaviour, target)
    truth = exact(table.returns(1.0), chance * np.exp(table.log_weights()[:, -1]))
    rows = np.random.default_rng(seed + 1_000_000).choice(len(table), (30, 4000), p=chance / chance.sum())
    found = [metric(table[row]).values for row in rows]
    return {"error": float(np.mean([sum(abs(x[name] - truth[name]) for name in STATISTICS) for x in found]))}


@claim(
    "Every number is that of the weighted episodes taken as a distribution, and the mean is weighted importance "
    "sampling.",
    kind="identity",
    baseline="the same without weights",
)
def of_the_weighted_episodes() -> Finding:
    off, other = 0.0, np.inf
    for seed in range(10):
        problem, behaviour, target = small_problem(seed)
        table: LoggedDecisions = problem.sample(behaviour, target, 200, seed)
        weight = np.exp(table.log_weights()[:, -1])
        found = uno(at=(0.25,), resamples=1)(table).values
        expected = exact(table.returns(1.0), weight) | {"mean": wis().terms(table).estimate()}
        plain = exact(table.returns(1.0), np.ones(200))
        off = max(off, *(abs(found[name] - expected[name]) for name in expected))
        other = min(other, max(abs(found[name] - plain[name]) for name in plain))
    return Finding(
        measured={"distance": off, "of unweighted episodes": float(other)},
        criterion="the first < 1e-9, the second > 1e-3, on ten problems",
        holds=off < 1e-9 and other > 1e-3,
    )


@claim(
    "With divisors n, the mean of F over all episodes that can be drawn is the target policy's own, at every return.",
    kind="identity",
    baseline="the log's own distribution",
)
def unbiased() -> Finding:
    off, other = 0.0, np.inf
    for seed in range(5):
        problem, behaviour, target = small_problem(seed)
        table, chance = problem.all_episodes(behaviour, target)
        gain, ratio = table.returns(1.0), np.exp(table.log_weights()[:, -1])
        order = np.argsort(gain, kind="stable")
        # A log with every episode as often as it is likely: weights in units of its length.
        mean = uno(self_normalised=False).distribution((ratio * chance)[order][None] * len(table))[0]
        law, logged = (np.array([x[gain <= at].sum() for at in gain[order]]) for x in (ratio * chance, chance))
        last = np.append(np.diff(gain[order]) > 0, True)  # of equal returns the last
        off = max(off, float(np.abs(mean - law)[last].max()))
        other = min(other, float(np.abs(law - logged).max()))
    return Finding(
        measured={"distance": off, "of the log's distribution": float(other)},
        criterion="the first < 1e-9, the second > 1e-2, on five problems",
        holds=off < 1e-9 and other > 1e-2,
    )


@mutation("The worst share is taken from the best returns.", kills=of_the_weighted_episodes)
def the_best(replace: Replace) -> None:
    statistics = ReturnDistribution._statistics

    def turned(self: ReturnDistribution, gain: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return -statistics(self, -gain[::-1], weight[:, ::-1])

    replace(ReturnDistribution, "_statistics", turned)


@mutation("Episodes are not weighted.", kills=errs_less)
def unweighted(replace: Replace) -> None:
    replace(WeightLimit, "forward", lambda self, log_weight: np.zeros_like(log_weight))
