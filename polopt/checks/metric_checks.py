"""What `polopt check` finds of an off-policy metric, on logs of a small problem whose truth is known."""

from __future__ import annotations

from polopt.checks.finding import CheckResult
from polopt.checks.metric_rules import METRIC, MetricRow
from polopt.lab.logged import small_problem, with_values
from polopt.metrics import LoggedDecisions, Metric, OffPolicyEstimator

# Episodes of each log.
EPISODES = 60


def metric_findings(metric: Metric) -> list[CheckResult]:
    """Returns what holds of a metric, and what breaks.

    Raises:
        ValueError: it reads something else than logged decisions, of which the checks have no examples.
    """
    if not isinstance(metric, OffPolicyEstimator):
        raise ValueError(f"{metric!r} reads no logged decisions, and the checks have no examples of anything else")
    problem, behaviour, target = small_problem(0)
    q, _ = problem.values(target, metric.gamma)

    def log(seed: int) -> LoggedDecisions:
        return with_values(problem.sample(behaviour, target, EPISODES, seed), q, target)

    row, found = MetricRow(metric, log, problem.value(target, metric.gamma)), []
    for rule in METRIC:
        failure = rule.failure(row)  # type: ignore[arg-type]
        sentence = "" if failure is None else failure.sentence
        found.append(CheckResult(rule.title, "holds" if failure is None else "breaks", sentence, rule.why))
    return found
