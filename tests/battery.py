"""The checks of `polopt.checks`, each by the name that the tests know it by."""

from __future__ import annotations

from polopt.checks.battery import CREDIT, OBJECTIVE, REWARD, SEEDS, SELECT
from polopt.checks.calls import CallResult, judge
from polopt.checks.cases import PartRow
from polopt.checks.guard_rules import GUARD, GuardRow
from polopt.checks.metric_rules import METRIC, MetricRow
from polopt.checks.sample_batches import SampleBatch, random_batch

__all__ = [
    "CREDIT",
    "GUARD",
    "METRIC",
    "OBJECTIVE",
    "REWARD",
    "SEEDS",
    "SELECT",
    "CallResult",
    "GuardRow",
    "MetricRow",
    "PartRow",
    "SampleBatch",
    "judge",
    "random_batch",
]

# objective_padding, credit_equal, ...: called on a row, each raises AssertionError.
globals().update({check.__name__: check for check in (*OBJECTIVE, *CREDIT, *REWARD, *SELECT, *METRIC, *GUARD)})
