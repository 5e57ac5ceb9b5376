"""Runs of an agent under policies: success, and which policies each run violated or left dormant."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polopt.metrics.row_format import MetricDataError, RowFormat, column_names, flag_in, name_in, number_in

COLUMNS = ("task", "run", "success", "policy", "dimension", "violated", "dormant", "satisfied", "total")


@dataclasses.dataclass(frozen=True, eq=False)
class PolicyRuns:
    """N instances of a policy in a run, [N] each; a run without policies is one row with an empty policy.

    task, run, policy, dimension: names. success: of the run, the same in all of its rows. violated, dormant: of the
    policy; dormant: what triggers it did not occur. satisfied, total: requirements of the task that the run met, and
    all of them; None is success, of 1.

    Raises:
        MetricDataError: columns of different lengths or without rows, a run with a policy twice or with two outcomes, a
            policy that is both dormant and violated, or satisfied outside 0..total.
    """

    task: Any
    run: Any
    success: Any
    policy: Any
    dimension: Any
    violated: Any
    dormant: Any
    satisfied: Any = None
    total: Any = None

    def __post_init__(self) -> None:
        n = len(np.atleast_1d(np.asarray(self.task)))
        kinds = {"task": str, "run": str, "policy": str, "dimension": str, "success": bool, "violated": bool}
        for name, kind in (kinds | {"dormant": bool}).items():
            object.__setattr__(self, name, np.asarray(getattr(self, name), kind))
        for name, default in (("satisfied", self.success), ("total", np.ones(n))):
            value = getattr(self, name)
            object.__setattr__(self, name, np.asarray(default if value is None else value, float))
        shapes = {name: getattr(self, name).shape for name in COLUMNS}
        if not n or any(shape != (n,) for shape in shapes.values()):
            raise MetricDataError(f"PolicyRuns: every column must be [N] with N >= 1, found {shapes}")
        if not ((self.total > 0) & (self.satisfied >= 0) & (self.satisfied <= self.total)).all():
            raise MetricDataError("PolicyRuns: satisfied must be from 0 to total, and total above 0")
        outcomes: dict[tuple[str, str], tuple[Any, ...]] = {}
        seen: set[tuple[str, str, str]] = set()
        for i in range(n):
            task, run, policy = str(self.task[i]), str(self.run[i]), str(self.policy[i])
            where = f"task {task!r:.60}, run {run!r:.60}"
            outcome = (self.success[i], self.satisfied[i], self.total[i])
            if outcomes.setdefault((task, run), outcome) != outcome:
                raise MetricDataError(f"{where}: its rows have two outcomes; give each the run's")
            if (task, run, policy) in seen:
                raise MetricDataError(f"{where}: policy {policy!r:.60} stands there twice")
            seen.add((task, run, policy))
            if self.violated[i] and (self.dormant[i] or not policy):
                what = f"policy {policy!r:.60} is dormant" if policy else "no policy"
                raise MetricDataError(f"{where}: {what}, and violated; a violated policy was triggered")

    def __len__(self) -> int:
        return len(self.task)

    def __getitem__(self, rows: Sequence[int] | NDArray[Any]) -> PolicyRuns:
        return PolicyRuns(**{name: getattr(self, name)[rows] for name in COLUMNS})


def policy_run_row(row: Mapping[str, Any], columns: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Checks one row of a file. run, policy, dimension, violated, dormant, satisfied and total may be missing.

    Raises:
        MetricDataError: a task that is missing, a flag that is neither true nor false, or no number.
    """
    names = column_names(COLUMNS, columns)
    task = name_in(row, names["task"])
    text = {name: "" if row.get(names[name]) is None else str(row[names[name]]).strip() for name in COLUMNS}
    found: dict[str, Any] = {"task": task, "run": text["run"] or "0", "policy": text["policy"]}
    found["dimension"] = text["dimension"] or "all"
    found["success"] = flag_in(row, names["success"])
    found |= {name: flag_in(row, names[name], default=False) for name in ("violated", "dormant")}
    satisfied, total = (number_in(row, names[name], required=False) for name in ("satisfied", "total"))
    if (satisfied is None) is not (total is None):
        raise MetricDataError(f"{names['satisfied']} and {names['total']} belong together; give both or none")
    return found | {"satisfied": float(found["success"]) if satisfied is None else satisfied, "total": total or 1.0}


def policy_runs(rows: Iterable[tuple[int, Mapping[str, Any]]]) -> PolicyRuns:
    """Assembles rows.

    Raises:
        MetricDataError: as `PolicyRuns`.
    """
    found = [row for _, row in rows]
    return PolicyRuns(**{name: [row[name] for row in found] for name in COLUMNS})


POLICY_RUN_ROWS = RowFormat("runs under policies", COLUMNS, policy_run_row, policy_runs)
