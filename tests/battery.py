"""The checks of `polopt.checks`, each by the name that the tests know it by."""

from __future__ import annotations

import inspect
from types import ModuleType

from polopt import methods
from polopt.catalogue import slugs
from polopt.checks.battery import CREDIT, OBJECTIVE, REWARD, SEEDS, SELECT
from polopt.checks.calls import CallResult, call_part
from polopt.checks.cases import PartRow
from polopt.checks.guard_rules import GUARD, GuardRow
from polopt.checks.metric_rules import DATA_METRIC, METRIC, DataRow, MetricRow
from polopt.checks.sample_batches import SampleBatch, random_batch
from polopt.part import Part
from polopt.part_names import parts_of

__all__ = [
    "CREDIT",
    "DATA_METRIC",
    "GUARD",
    "METRIC",
    "OBJECTIVE",
    "REWARD",
    "SEEDS",
    "SELECT",
    "CallResult",
    "DataRow",
    "GuardRow",
    "MetricRow",
    "PartRow",
    "SampleBatch",
    "call_part",
    "public_parts",
    "random_batch",
]


def public_parts(*rooms: ModuleType) -> list[type[Part]]:
    """The parts that these rooms export, and those that stand beside methods."""
    found = [getattr(room, name) for room in rooms for name in room.__all__]
    for slug in slugs():
        module = getattr(methods, slug.replace("-", "_"))
        found += [getattr(module, name) for name in parts_of(module.__name__.rpartition(".")[2])]
    return [cls for cls in found if inspect.isclass(cls) and issubclass(cls, Part)]


# objective_padding, credit_equal, ...: called on a row, each raises AssertionError.
globals().update(
    {check.__name__: check for check in (*OBJECTIVE, *CREDIT, *REWARD, *SELECT, *METRIC, *DATA_METRIC, *GUARD)}
)
