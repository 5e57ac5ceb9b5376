"""Rows of the battery: metrics of logged decisions."""

from __future__ import annotations

from polopt.checks.metric_rules import MetricRow
from polopt.lab.logged import small_problem, with_values
from polopt.metrics import (
    DirectMethod,
    DoublyRobust,
    LoggedDecisions,
    LoggedValues,
    Metric,
    PerDecisionImportanceSampling,
    TabularValues,
    TrajectoryImportanceSampling,
)

GAMMA = 0.9
PROBLEM, BEHAVIOUR, TARGET = small_problem(0)
Q = PROBLEM.values(TARGET, GAMMA)[0]


def log(seed: int) -> LoggedDecisions:
    return with_values(PROBLEM.sample(BEHAVIOUR, TARGET, 60, seed), Q, TARGET)


def row(part: Metric) -> MetricRow:
    return MetricRow(part, log, PROBLEM.value(TARGET, GAMMA))


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
    "direct, given": row(DirectMethod(gamma=GAMMA, level=0.8, model=LoggedValues())),
    "direct, fitted": row(DirectMethod(gamma=GAMMA, level=0.8, resamples=15)),
}
