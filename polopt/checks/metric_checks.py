"""The findings of `polopt check` on a metric: of an off-policy one on logs of a small problem whose truth is known."""

from __future__ import annotations

from collections.abc import Sequence

from polopt.checks.finding import CheckResult
from polopt.checks.metric_rules import DATA_METRIC, METRIC, DataRow, MetricRow
from polopt.checks.state import Rule
from polopt.lab.logged import endless_walk, small_problem, with_values
from polopt.lab.measured import EXAMPLES
from polopt.metrics import LeastError, LoggedDecisions, Metric, OffPolicyEstimator

# Episodes of each log.
EPISODES = 60


def metric_findings(metric: Metric) -> list[CheckResult]:
    """Returns what holds of a metric, and what breaks.

    Raises:
        ValueError: it reads something else than logged decisions, of which the checks have no examples.
    """
    if not isinstance(metric, OffPolicyEstimator | LeastError):
        example = EXAMPLES.get(getattr(metric, "rows", None))  # type: ignore[arg-type]
        if example is None:
            raise ValueError(f"{metric!r} reads no logged decisions, and the checks have no examples of its data")
        return _findings(DATA_METRIC, DataRow(metric, example))
    problem, behaviour, target = small_problem(0)
    truth = problem.value(target, metric.gamma)
    if getattr(metric, "endless", False):  # episodes that are cut, and the value of going on
        problem, behaviour, target, truth = endless_walk(20, 0, metric.gamma)
    q, _ = problem.values(target, metric.gamma)

    def log(seed: int) -> LoggedDecisions:
        return with_values(problem.simulate(behaviour, target, EPISODES, seed), q, target)

    return _findings(METRIC, MetricRow(metric, log, truth))


def _findings(rules: Sequence[Rule], row: DataRow | MetricRow) -> list[CheckResult]:
    found = []
    for rule in rules:
        failure = rule.failure(row)  # type: ignore[arg-type]
        sentence = "" if failure is None else failure.sentence
        found.append(CheckResult(rule.title, "holds" if failure is None else "breaks", sentence, rule.why))
    return found
