"""Estimated and true values of candidate policies: what an off-policy estimator's ranking is worth."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polopt.metrics.row_format import MetricDataError, RowFormat, column_names, name_in, number_in

Numbers = NDArray[np.float64]
COLUMNS = ("estimator", "policy", "estimate", "value", "behaviour", "log")


@dataclasses.dataclass(frozen=True, eq=False)
class EstimatedPolicies:
    """N estimates; arrays or lists, [N] each.

    estimator, policy: names. estimate: of the policy's value by the estimator. value: the true one. behaviour: True in
    the rows of the policy that wrote the log, which is a candidate itself. log: name of the log that was estimated
    from; None where there is one.

    Raises:
        MetricDataError: arrays of different lengths or without rows, numbers that are not finite, an estimator with two
            estimates of one policy from one log, or a log without or with two behaviour policies.
    """

    estimator: Any
    policy: Any
    estimate: Any
    value: Any
    behaviour: Any
    log: Any = None

    def __post_init__(self) -> None:
        n = len(np.atleast_1d(np.asarray(self.estimator)))
        log = ["0"] * n if self.log is None else [str(x) for x in self.log]
        kinds = {"estimator": str, "policy": str, "estimate": float, "value": float, "behaviour": bool}
        for name, kind in kinds.items():
            object.__setattr__(self, name, np.asarray(getattr(self, name), kind))
        object.__setattr__(self, "log", np.asarray(log, str))
        shapes = {name: getattr(self, name).shape for name in (*kinds, "log")}
        if not n or any(shape != (n,) for shape in shapes.values()):
            raise MetricDataError(f"EstimatedPolicies: every column must be [N] with N >= 1, found {shapes}")
        if not (np.isfinite(self.estimate) & np.isfinite(self.value)).all():
            raise MetricDataError("EstimatedPolicies: estimate and value must be finite numbers")
        for (estimator, log_name), part in self.parts().items():
            where = f"estimator {estimator!r:.60}, log {log_name!r:.60}"
            if len(set(part.policy.tolist())) < len(part):
                raise MetricDataError(f"{where}: a policy has two estimates; give each one row")
            if part.behaviour.sum() != 1:
                raise MetricDataError(
                    f"{where}: {part.behaviour.sum()} rows are of the behaviour policy; it is a candidate itself: mark "
                    "the row of one"
                )

    def __len__(self) -> int:
        return len(self.estimator)

    def __getitem__(self, rows: Sequence[int] | NDArray[Any]) -> EstimatedPolicies:
        return EstimatedPolicies(**{f.name: getattr(self, f.name)[rows] for f in dataclasses.fields(self)})

    def parts(self) -> dict[tuple[str, str], _Candidates]:
        """Returns the candidates of each estimator and log."""
        keys = sorted(set(zip(self.estimator.tolist(), self.log.tolist(), strict=True)))
        found = {}
        for key in keys:
            rows = (self.estimator == key[0]) & (self.log == key[1])
            found[key] = _Candidates(self.policy[rows], self.estimate[rows], self.value[rows], self.behaviour[rows])
        return found


@dataclasses.dataclass(frozen=True, eq=False)
class _Candidates:
    """The candidates that one estimator ranks from one log, [n] each."""

    policy: NDArray[np.str_]
    estimate: Numbers
    value: Numbers
    behaviour: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.policy)

    def ranked(self) -> Numbers:
        """Returns the true values in the order of the estimates, the highest first; equal ones by name."""
        return self.value[np.lexsort([self.policy, -self.estimate])]


def estimated_row(row: Mapping[str, Any], columns: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Checks one estimate of a file.

    Raises:
        MetricDataError: a column that is missing, no number, or a `behaviour` that is neither true nor false.
    """
    names = column_names(COLUMNS, columns)
    found: dict[str, Any] = {}
    found |= {name: name_in(row, names[name]) for name in ("estimator", "policy")}
    for name in ("estimate", "value"):
        found[name] = number_in(row, names[name])
    flag = row.get(names["behaviour"], False)
    known = {"true": True, "1": True, "false": False, "0": False, "": False, "none": False}
    if str(flag).strip().lower() not in known:
        raise MetricDataError(f"{names['behaviour']} must be true or false, found {flag!r:.60}")
    found["behaviour"] = known[str(flag).strip().lower()]
    log = row.get(names["log"])
    return found | {"log": "0" if log in (None, "") else str(log)}


def estimated_policies(rows: Iterable[tuple[int, Mapping[str, Any]]]) -> EstimatedPolicies:
    """Assembles estimates.

    Raises:
        MetricDataError: as `EstimatedPolicies`.
    """
    found = [row for _, row in rows]
    return EstimatedPolicies(**{name: [row[name] for row in found] for name in COLUMNS})


ESTIMATE_ROWS = RowFormat("estimated and true values of policies", COLUMNS, estimated_row, estimated_policies)
