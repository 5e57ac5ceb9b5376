"""Per-decision importance sampling: what a policy would earn, from another one's log."""

from typing import Literal

from polopt.lab.logged import estimated, small_problem
from polopt.method import Finding, Paper, method
from polopt.metrics import PerDecisionImportanceSampling, TrajectoryImportanceSampling

PAPER = Paper(
    title="Eligibility Traces for Off-Policy Policy Evaluation",
    authors="Precup, Doina and Sutton, Richard S. and Singh, Satinder",
    year=2000,
    venue="ICML 2000",
)
PROBLEMS = range(20)


@method(
    paper=PAPER,
    changes="A policy's value from another policy's log: each reward weighed by the probability ratios of the "
    "decisions before it.",
    tier="faithful",
)
def pdis(
    *,
    gamma: float = 1.0,
    self_normalised: bool = False,
    interval: Literal["t", "normal", "bootstrap"] = "t",
    level: float = 0.95,
) -> PerDecisionImportanceSampling:
    """From n logged episodes of the behaviour policy b, the target policy pi is worth

        1/n sum_i sum_t gamma^t w_{0:t} r_t,    w_{0:t} = prod_{k <= t} pi(a_k | s_k) / b(a_k | s_k),

    which is unbiased where b takes every action that pi takes. A weight waits for no later decision, so that it varies
    less than the whole episode's. self_normalised divides each step's weights by their own mean: consistent, a little
    biased, less variable. An episode that has ended keeps its last weight, as if it rested where both policies do the
    same. The interval is over episodes: Student's t of their terms, a normal one or the bias-corrected bootstrap.

    The paper writes it for the value of a state and an action, whose own ratio is then left out.
    """
    return PerDecisionImportanceSampling(gamma=gamma, self_normalised=self_normalised, interval=interval, level=level)


@pdis.claim(
    "Its expectation is the target policy's value, whatever policy wrote the log.",
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


@pdis.claim(
    "It varies less than importance sampling of whole episodes.",
    baseline="importance sampling of whole episodes",
)
def varies_less() -> Finding:
    ratios = []
    for seed in PROBLEMS:
        problem, behaviour, target = small_problem(seed)
        own, whole = (
            estimated(problem, behaviour, target, metric)[1]
            for metric in (pdis(gamma=0.9), TrajectoryImportanceSampling(gamma=0.9))
        )
        ratios.append(own / whole)
    lower = sum(ratio < 1 for ratio in ratios)
    return Finding(
        measured={"median ratio of variances": sorted(ratios)[len(ratios) // 2], "problems with less": lower},
        criterion="the median ratio of the exact variances < 1, and less variance in at least 15 of 20 problems",
        holds=sorted(ratios)[len(ratios) // 2] < 1 and lower >= 15,
        note="No theorem: where later weights and earlier rewards offset each other, whole episodes can vary less.",
    )
