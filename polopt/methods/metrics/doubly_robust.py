"""Doubly robust off-policy evaluation: a model's values, and its errors by importance sampling."""

from typing import Literal

import numpy as np

from polopt.lab.logged import estimated, small_problem
from polopt.method import Finding, Paper, method
from polopt.methods.metrics.pdis import PROBLEMS, pdis
from polopt.metrics import ActionValueModel, DirectMethod, DoublyRobust, LoggedValues, TabularValues


@method(
    paper=Paper(
        title="Doubly Robust Off-policy Value Evaluation for Reinforcement Learning",
        authors="Jiang, Nan and Li, Lihong",
        year=2016,
        arxiv="1511.03722",
    ),
    changes="A policy's value from another policy's log: a model's values, whose errors are weighed as by per-decision "
    "importance sampling.",
    tier="faithful",
)
def doubly_robust(
    *,
    gamma: float = 1.0,
    self_normalised: bool = False,
    model: ActionValueModel | None = None,
    folds: int = 2,
    interval: Literal["t", "normal", "bootstrap"] = "t",
    level: float = 0.95,
) -> DoublyRobust:
    """From n logged episodes of the behaviour policy b, the target policy pi is worth

        1/n sum_i sum_t gamma^t [w_{0:t} (r_t - q(s_t, a_t)) + w_{0:t-1} v(s_t)],    v(s) = sum_a pi(a | s) q(s, a),

    with w_{0:t} = prod_{k <= t} pi(a_k | s_k) / b(a_k | s_k) and w_{0:-1} = 1, for any q: unbiased whatever the model
    holds, without variance from the actions where it is right. q = 0 is per-decision importance sampling.
    self_normalised divides each step's weights by their mean, the weighted doubly robust estimator of Thomas and
    Brunskill (arXiv 1604.00923).

    model: None fits a table by least squares to the log (TabularValues), which needs the columns state and action;
    LoggedValues reads the columns q and v. folds: a fitted model values episodes that it has not seen, for which the
    log is cut into so many parts, as the paper keeps the data of the model and of the estimate apart.
    """
    return DoublyRobust(
        gamma=gamma,
        self_normalised=self_normalised,
        model=TabularValues() if model is None else model,
        folds=folds,
        interval=interval,
        level=level,
    )


@doubly_robust.claim(
    "Its expectation is the target policy's value whatever the model holds.",
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


@doubly_robust.claim(
    "With a good model it varies less than importance sampling.",
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
