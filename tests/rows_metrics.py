"""Rows of the battery: metrics of logged decisions."""

from __future__ import annotations

import numpy as np

from polopt.checks.metric_rules import MetricRow
from polopt.lab.logged import EpisodicProblem, Numbers, small_problem, with_values
from polopt.lab.slates import slates
from polopt.metrics import (
    BlendedReturns,
    ClippedWeights,
    CorrectedValues,
    DirectMethod,
    DoublyRobust,
    IndependentImportanceSampling,
    LeastError,
    LoggedDecisions,
    LoggedValues,
    MarginalImportanceSampling,
    Metric,
    MinimumVarianceValues,
    PerDecisionImportanceSampling,
    PseudoInverse,
    ShrunkWeights,
    StationaryImportanceSampling,
    SwitchedWeights,
    TabularValues,
    TrajectoryImportanceSampling,
    ValuesByAction,
)

GAMMA = 0.9
PROBLEM, BEHAVIOUR, TARGET = small_problem(0)
Q = PROBLEM.values(TARGET, GAMMA)[0]


def log(seed: int) -> LoggedDecisions:
    return with_values(PROBLEM.sample(BEHAVIOUR, TARGET, 60, seed), Q, TARGET)


def row(part: Metric) -> MetricRow:
    return MetricRow(part, log, PROBLEM.value(TARGET, GAMMA))


SLATES = slates(0)
ALL_SLATES, SLATE_CHANCE = SLATES.all_slates()


def slate_log(seed: int) -> LoggedDecisions:
    """60 slates of three positions."""
    return ALL_SLATES[np.random.default_rng(seed).choice(len(ALL_SLATES), 60, p=SLATE_CHANCE)]


def one_decision() -> tuple[EpisodicProblem, Numbers, Numbers]:
    """Returns a problem of one decision, whose rewards have no noise, a behaviour and a target policy."""
    draw = np.random.default_rng(0)
    ends = np.broadcast_to(np.eye(7)[6], (6, 2, 7)).copy()
    problem = EpisodicProblem(np.full(6, 1 / 6), ends, draw.normal(size=(6, 2, 1)) * ends, 1)
    return problem, np.full((6, 2), 0.5), draw.dirichlet(np.ones(2), 6)


def shrunken(seed: int) -> LoggedDecisions:
    """Returns a log with 0.3 of the true values, and an offset, as values."""
    q = 0.3 * ONE.values(ONE_TARGET, GAMMA)[0] + 0.2
    return with_values(ONE.simulate(ONE_BEHAVIOUR, ONE_TARGET, 60, seed), q, ONE_TARGET)


ONE, ONE_BEHAVIOUR, ONE_TARGET = one_decision()


METRICS = {
    "trajectory": row(TrajectoryImportanceSampling(gamma=GAMMA, interval="normal", level=0.8)),
    "trajectory, weighted": row(
        TrajectoryImportanceSampling(gamma=GAMMA, self_normalised=True, interval="bootstrap", level=0.8, resamples=200)
    ),
    "per decision": row(PerDecisionImportanceSampling(gamma=GAMMA, level=0.8)),
    "doubly robust, given": row(DoublyRobust(gamma=GAMMA, model=LoggedValues(), level=0.8)),
    "doubly robust, fitted": row(DoublyRobust(gamma=GAMMA, level=0.8)),
    "doubly robust, weighted": row(
        DoublyRobust(gamma=GAMMA, level=0.8, self_normalised=True, model=TabularValues(by_step=True))
    ),
    # Limits that the problem's weights hardly reach, as an interval contains no bias.
    "doubly robust, shrunk": row(
        DoublyRobust(gamma=GAMMA, model=LoggedValues(), level=0.8, limit=ShrunkWeights(strength=1e4))
    ),
    "doubly robust, switched": row(
        DoublyRobust(gamma=GAMMA, model=LoggedValues(), level=0.8, limit=SwitchedWeights(most=100.0))
    ),
    "per decision, clipped": row(
        PerDecisionImportanceSampling(gamma=GAMMA, level=0.8, limit=ClippedWeights(most=100.0))
    ),
    "least error": row(
        LeastError(
            candidates=[DoublyRobust(gamma=GAMMA, level=0.8), PerDecisionImportanceSampling(gamma=GAMMA, level=0.8)],
            unbiased=DoublyRobust(gamma=GAMMA),
        )
    ),
    "marginalised": row(MarginalImportanceSampling(gamma=GAMMA, level=0.8, resamples=40)),
    "direct, given": row(DirectMethod(gamma=GAMMA, level=0.8, model=LoggedValues())),
    "direct, fitted": row(DirectMethod(gamma=GAMMA, level=0.8, resamples=15)),
    "doubly robust, by action": row(DoublyRobust(gamma=GAMMA, level=0.8, model=ValuesByAction())),
    "doubly robust, least variance": row(
        DoublyRobust(gamma=GAMMA, level=0.8, model=MinimumVarianceValues(by_step=True))
    ),
    "blended": row(BlendedReturns(gamma=GAMMA, level=0.8, model=LoggedValues(), bias_resamples=50)),
    "stationary": row(StationaryImportanceSampling(gamma=GAMMA, level=0.8, resamples=40)),
    "independent positions": MetricRow(IndependentImportanceSampling(level=0.8), slate_log, SLATES.value()),
    "pseudo-inverse": MetricRow(PseudoInverse(level=0.8), slate_log, SLATES.value()),
    "direct, corrected": MetricRow(
        DirectMethod(gamma=GAMMA, level=0.8, resamples=60, model=CorrectedValues(model=LoggedValues())),
        shrunken,
        ONE.value(ONE_TARGET, GAMMA),
    ),
}
