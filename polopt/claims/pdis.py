"""These programs measure what the paper of PDIS claims."""

import numpy as np

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.logged import PROBLEMS, estimated, small_problem
from polopt.methods.pdis import pdis
from polopt.metrics import LoggedDecisions, PerDecisionImportanceSampling, TrajectoryImportanceSampling
from polopt.metrics.off_policy import WeightedTerms


@claim(
    "Its expectation is the target policy's value, whatever policy wrote the log.",
    kind="part",
    baseline="the mean return of the log",
)
def unbiased() -> Finding:
    error, control = 0.0, 0.0
    for seed in PROBLEMS:
        problem, behaviour, target = small_problem(seed)
        truth = problem.value(target, 0.9)
        mean, _ = estimated(problem, behaviour, target, pdis(gamma=0.9))
        error = max(error, abs(mean - truth))
        control = max(control, abs(problem.value(behaviour, 0.9) - truth))
    return Finding(
        measured={"largest bias": error, "largest bias of the mean return": control},
        criterion="largest bias <= 1e-12, and that of the mean return >= 0.1",
        holds=error <= 1e-12 and control >= 0.1,
        note="the exact expectation over every episode that can be logged, in 20 random problems of 3 states, 2 "
        "actions and at most 3 decisions",
    )


@claim(
    "It varies less than importance sampling of whole episodes.",
    kind="headline",
    baseline="importance sampling of whole episodes",
)
def varies_less() -> Finding:
    ratios = []
    for seed in PROBLEMS:
        problem, behaviour, target = small_problem(seed)
        own, episode_variance = (
            estimated(problem, behaviour, target, metric)[1]
            for metric in (pdis(gamma=0.9), TrajectoryImportanceSampling(gamma=0.9))
        )
        ratios.append(own / episode_variance)
    lower = sum(ratio < 1 for ratio in ratios)
    return Finding(
        measured={"median ratio of variances": sorted(ratios)[len(ratios) // 2], "problems with less": lower},
        criterion="the median ratio of the exact variances < 1, and less variance in at least 15 of 20 problems",
        holds=sorted(ratios)[len(ratios) // 2] < 1 and lower >= 15,
        note="No theorem: where later weights and earlier rewards offset each other, whole episodes can vary less.",
    )


@mutation("A reward's weight leaves out the decision that earned it.", kills=unbiased)
def own_decision(replace: Replace) -> None:
    def terms(self: PerDecisionImportanceSampling, table: LoggedDecisions) -> WeightedTerms:
        discount = self.gamma ** np.arange(table.reward.shape[1])
        weights = np.pad(table.log_weights(), ((0, 0), (1, 0)))[:, :-1]
        return WeightedTerms(weights, discount * table.reward, self.self_normalised, weights)

    replace(PerDecisionImportanceSampling, "terms", terms)


@mutation("Every reward has the whole episode's weight.", kills=varies_less)
def whole_episode(replace: Replace) -> None:
    def terms(self: PerDecisionImportanceSampling, table: LoggedDecisions) -> WeightedTerms:
        discount = self.gamma ** np.arange(table.reward.shape[1])
        weights = np.repeat(table.log_weights()[:, -1:], table.reward.shape[1], axis=1)
        return WeightedTerms(weights, discount * table.reward, self.self_normalised, weights)

    replace(PerDecisionImportanceSampling, "terms", terms)
