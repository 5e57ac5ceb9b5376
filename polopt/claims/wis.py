"""These programs measure what the paper of weighted importance sampling claims."""

import numpy as np

import polopt.methods.wis as module
from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.logged import PROBLEMS, small_problem
from polopt.methods.wis import wis
from polopt.metrics import TrajectoryImportanceSampling
from polopt.metrics.intervals import t_interval


@claim(
    "It is a little biased, and no constant in the returns makes it vary, so that its squared error is smaller than "
    "that of ordinary importance sampling where returns are far from 0.",
    kind="headline",
    baseline="ordinary importance sampling, self_normalised=False",
)
def smaller_error() -> Finding:
    """Of two logged episodes, over all pairs."""
    constants = (0.0, 5.0, 20.0)
    ratios = {constant: list[float]() for constant in constants}
    moved, bias, plain_bias = 0.0, 0.0, 0.0
    for seed in PROBLEMS:
        problem, behaviour, target = small_problem(seed)
        table, chance = problem.all_episodes(behaviour, target)
        both, w = chance[:, None] * chance, np.exp(table.log_weights()[:, -1])
        own = list[float]()
        for constant in constants:
            returns, truth = table.returns(0.9) + constant, problem.value(target, 0.9) + constant
            above = w[:, None] * returns[:, None] + w * returns
            errors = above / (w[:, None] + w) - truth, above / 2 - truth
            own.append(float((both * errors[0] ** 2).sum()))
            ratios[constant].append(own[-1] / float((both * errors[1] ** 2).sum()))
            means = [abs(float((both * error).sum())) for error in errors]
            bias, plain_bias = max(bias, means[0]), max(plain_bias, means[1])
        moved = max(moved, max(own) - min(own))
    gain = t_interval(np.log(ratios[5.0]))
    low, typical, high = (float(np.exp(x)) for x in (gain.low, gain.estimate, gain.high))
    return Finding(
        measured={
            "squared error moved by a constant": moved,
            "ratio of squared errors, returns + 5": typical,
            "largest ratio, returns + 5": max(ratios[5.0]),
            "largest ratio, returns + 20": max(ratios[20.0]),
            "problems of 20 with a smaller error, returns + 0": float(sum(r < 1 for r in ratios[0.0])),
            "largest bias": bias,
            "largest bias, ordinary": plain_bias,
        },
        criterion="no constant moves its squared error by 1e-9; with returns + 5 the 95 % interval of the ratio, a "
        "geometric mean over 20 problems, is below 0.5; with + 20 every ratio is below 1; largest bias >= 0.01, "
        "ordinary <= 1e-12",
        holds=moved < 1e-9 and high < 0.5 and max(ratios[20.0]) < 1 and bias >= 0.01 and plain_bias <= 1e-12,
        intervals={"ratio of squared errors, returns + 5": (low, high)},
        note="Exact, over all pairs of episodes that can be logged, in 20 random problems. How far from 0 is enough "
        "differs: 5 is for most problems, not for each that can be drawn.",
    )


@claim(
    "It lies within the range of the logged returns, as the mean of them by their weights does.",
    kind="part",
    baseline="ordinary importance sampling, which leaves the range",
)
def within_range() -> Finding:
    off, outside, ordinary = 0.0, 0, 0
    for seed in PROBLEMS:
        problem, behaviour, target = small_problem(seed)
        episodes, chance = problem.all_episodes(behaviour, target)
        draw = np.random.default_rng(seed)
        for _ in range(10):
            table = episodes[draw.choice(len(episodes), 3, p=chance / chance.sum())]
            weights = np.exp((table.target_logp - table.behaviour_logp).sum(1))
            returns = (0.9 ** np.arange(table.reward.shape[1]) * table.reward).sum(1)
            found, plain = (wis(gamma=0.9, self_normalised=own).terms(table).estimate() for own in (True, False))
            off = max(off, abs(found - float(weights @ returns / weights.sum())))
            outside += not returns.min() - 1e-12 <= found <= returns.max() + 1e-12
            ordinary += not returns.min() <= plain <= returns.max()
    return Finding(
        measured={"largest error": off, "outside": float(outside), "outside, ordinary": float(ordinary)},
        criterion="error < 1e-12, never outside in 200 logs of 3 episodes; ordinary in more than 10",
        holds=off < 1e-12 and outside == 0 and ordinary > 10,
    )


@mutation("The weights are not normalised by their sum.", kills=within_range)
def not_normalised(replace: Replace) -> None:
    replace(
        module,
        "TrajectoryImportanceSampling",
        lambda self_normalised, **settings: TrajectoryImportanceSampling(self_normalised=False, **settings),
    )


@mutation("Returns are not discounted.", kills=within_range)
def undiscounted(replace: Replace) -> None:
    replace(module, "TrajectoryImportanceSampling", lambda gamma, **settings: TrajectoryImportanceSampling(**settings))
