"""These programs measure what the paper of doubly robust evaluation claims."""

import numpy as np

from polopt.claim import Finding, claim
from polopt.lab.logged import PROBLEMS, estimated, small_problem
from polopt.methods.doubly_robust import doubly_robust
from polopt.methods.pdis import pdis
from polopt.metrics import DirectMethod, LoggedValues


@claim(
    "Its expectation is the target policy's value whatever the model holds.",
    kind="headline",
    baseline="the direct method, with the same model",
)
def unbiased_whatever_the_model() -> Finding:
    error, control = 0.0, np.inf
    for seed in PROBLEMS:
        problem, behaviour, target = small_problem(seed)
        truth, wrong = problem.value(target, 0.9), np.random.default_rng(seed).normal(size=(3, 3, 2))
        mean, _ = estimated(problem, behaviour, target, doubly_robust(gamma=0.9, model=LoggedValues()), wrong)
        direct, _ = estimated(problem, behaviour, target, DirectMethod(gamma=0.9, model=LoggedValues()), wrong)
        error, control = max(error, abs(mean - truth)), min(control, abs(direct - truth))
    return Finding(
        measured={"largest bias": error, "smallest bias of the direct method": float(control)},
        criterion="largest bias <= 1e-12, and the direct method is biased by 0.01 or more in every problem",
        holds=error <= 1e-12 and bool(control >= 0.01),
        note="the exact expectation over every episode that can be logged, with values drawn at random, in 20 problems",
    )


@claim(
    "With a good model it varies less than importance sampling.",
    kind="part",
    baseline="per-decision importance sampling",
)
def varies_less() -> Finding:
    right: list[float] = []
    wrong: list[float] = []
    for seed in PROBLEMS:
        problem, behaviour, target = small_problem(seed)
        q = problem.values(target, 0.9)[0]
        plain = estimated(problem, behaviour, target, pdis(gamma=0.9))[1]
        for found, values in ((right, q), (wrong, -q)):
            metric = doubly_robust(gamma=0.9, model=LoggedValues())
            found.append(estimated(problem, behaviour, target, metric, values)[1] / plain)
    return Finding(
        measured={"largest ratio of variances": max(right), "largest, with the values' signs changed": max(wrong)},
        criterion="largest ratio of the exact variances < 1 with the true values, and > 1 with their negatives",
        holds=max(right) < 1 < max(wrong),
        note="20 problems. A bad model costs variance, never bias.",
    )
