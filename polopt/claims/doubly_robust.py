"""These programs measure what the paper of doubly robust evaluation claims."""

import numpy as np

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.logged import PROBLEMS, estimated, small_problem
from polopt.methods.doubly_robust import doubly_robust
from polopt.methods.pdis import pdis
from polopt.metrics import DirectMethod, DoublyRobust, LoggedDecisions, LoggedValues
from polopt.metrics.off_policy import ActionValues, WeightedTerms


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
        criterion="largest bias <= 1e-12, and the direct method is biased by 0.001 or more in every problem",
        holds=error <= 1e-12 and bool(control >= 0.001),
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


@mutation("The model's errors have the weight of the step before.", kills=unbiased_whatever_the_model)
def weight_of_the_step_before(replace: Replace) -> None:
    def terms(self: DoublyRobust, table: LoggedDecisions) -> WeightedTerms:
        found, weights = self.values(table), table.log_weights()
        before = np.concatenate([np.zeros((len(table), 1)), weights[:, :-1]], 1)
        discount = self.gamma ** np.arange(table.reward.shape[1])
        sides = [discount * np.where(table.mask, x, 0.0) for x in (table.reward - found.q, found.v)]
        both = np.concatenate([before, before], 1), np.concatenate(sides, 1)
        return WeightedTerms(*both, self.self_normalised, weights)

    replace(DoublyRobust, "terms", terms)


@mutation("The model's values have the wrong sign.", kills=varies_less)
def sign_of_the_model(replace: Replace) -> None:
    values = DoublyRobust.values

    def negative(self: DoublyRobust, table: LoggedDecisions) -> ActionValues:
        found = values(self, table)
        return ActionValues(-found.q, -found.v)

    replace(DoublyRobust, "values", negative)
