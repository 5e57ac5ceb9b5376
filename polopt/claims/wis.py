"""These programs measure what the paper of weighted importance sampling claims."""

import numpy as np

import polopt.methods.wis as module
from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.logged import PROBLEMS, small_problem
from polopt.methods.wis import wis
from polopt.metrics import TrajectoryImportanceSampling


@claim(
    "It is a little biased, and no constant in the returns makes it vary, so that its squared error is smaller than "
    "that of ordinary importance sampling where returns are far from 0.",
    kind="headline",
    baseline="ordinary importance sampling, self_normalised=False",
)
def smaller_error() -> Finding:
    """Of two logged episodes, over all pairs."""
    ratios: dict[float, list[float]] = {0.0: [], 5.0: []}
    bias, plain_bias = 0.0, 0.0
    for seed in PROBLEMS:
        problem, behaviour, target = small_problem(seed)
        table, chance = problem.all_episodes(behaviour, target)
        both, w = chance[:, None] * chance, np.exp(table.log_weights()[:, -1])
        for constant in ratios:
            returns, truth = table.returns(0.9) + constant, problem.value(target, 0.9) + constant
            above = w[:, None] * returns[:, None] + w * returns
            errors = above / (w[:, None] + w) - truth, above / 2 - truth
            ratios[constant].append(float((both * errors[0] ** 2).sum() / (both * errors[1] ** 2).sum()))
            means = [abs(float((both * error).sum())) for error in errors]
            bias, plain_bias = max(bias, means[0]), max(plain_bias, means[1])
    return Finding(
        measured={
            "largest ratio of squared errors, returns + 5": max(ratios[5.0]),
            "largest ratio of squared errors": max(ratios[0.0]),
            "largest bias": bias,
            "largest bias, ordinary": plain_bias,
        },
        criterion="largest ratio with returns + 5 < 1; largest bias >= 0.01, and ordinary <= 1e-12",
        holds=max(ratios[5.0]) < 1 and bias >= 0.01 and plain_bias <= 1e-12,
        note="Exact, over all pairs of episodes that can be logged, in 20 random problems. With returns around 0 its "
        f"squared error is smaller in {sum(r < 1 for r in ratios[0.0])} of 20 problems only.",
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
