"""Trials of policies on tasks: successes in the order in which they were run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polopt.metrics.row_format import MetricDataError, RowFormat, column_names, number_in

Numbers = NDArray[np.float64]
COLUMNS = ("policy", "success", "task", "order", "pair", "score")
YES_AND_NO = {"true": 1.0, "yes": 1.0, "1": 1.0, "1.0": 1.0, "false": 0.0, "no": 0.0, "0": 0.0, "0.0": 0.0}


@dataclasses.dataclass(frozen=True, eq=False)
class PolicyTrials:
    """N trials; arrays or lists, [N] each.

    policy: names. success: true or false. task: names; None where there is one. order: when each trial was run, any
    increasing numbers; None for the order of the rows. pair: name of the initial condition, under which each policy has
    one trial of the task; None where trials were not matched. score: partial success in [0, 1]; None where unknown.

    Raises:
        MetricDataError: arrays of different lengths or without rows, a success that is not 0 or 1, a score outside
            [0, 1], an order that is not finite, two trials of one policy in one pair, or only some trials with a pair.
    """

    policy: Any
    success: Any
    task: Any = None
    order: Any = None
    pair: Any = None
    score: Any = None

    def __post_init__(self) -> None:
        n = len(np.atleast_1d(np.asarray(self.policy)))
        kinds: dict[str, tuple[Any, Any]] = {
            "policy": (str, None),
            "success": (float, None),
            "task": (str, ["all"] * n),
            "order": (float, np.arange(n)),
            "pair": (str, [""] * n),
            "score": (float, np.full(n, np.nan)),
        }
        for name, (kind, otherwise) in kinds.items():
            given = getattr(self, name)
            object.__setattr__(self, name, np.asarray(otherwise if given is None else given, kind))
        shapes = {name: getattr(self, name).shape for name in kinds}
        if not n or any(shape != (n,) for shape in shapes.values()):
            raise MetricDataError(f"PolicyTrials: every column must be [N] with N >= 1, found {shapes}")
        if not np.isin(self.success, (0.0, 1.0)).all():
            raise MetricDataError("PolicyTrials: success must be true or false, 1 or 0; partial success is `score`")
        known = ~np.isnan(self.score)
        if not np.isfinite(self.order).all() or ((self.score[known] < 0) | (self.score[known] > 1)).any():
            raise MetricDataError("PolicyTrials: order must be finite numbers, and score lie in [0, 1]")
        self._check_pairs()

    def _check_pairs(self) -> None:
        named = self.pair != ""
        if named.any() and not named.all():
            raise MetricDataError(f"{(~named).sum()} trials have no pair; name it in every row or in none")
        if not named.any():
            return
        seen: set[tuple[str, str, str]] = set()
        for key in zip(self.task.tolist(), self.pair.tolist(), self.policy.tolist(), strict=True):
            if key in seen:
                task, pair, policy = key
                raise MetricDataError(
                    f"policy {policy!r:.60} has two trials in pair {pair!r:.60} of task {task!r:.60}; give each its own"
                )
            seen.add(key)

    def __len__(self) -> int:
        return len(self.policy)

    def __getitem__(self, rows: Sequence[int] | NDArray[Any]) -> PolicyTrials:
        return PolicyTrials(**{f.name: getattr(self, f.name)[rows] for f in dataclasses.fields(self)})

    def policies(self) -> list[str]:
        return sorted(set(self.policy.tolist()))

    def tasks(self, *policies: str) -> list[str]:
        """Returns the tasks that all of these policies were tried on."""
        of = [set(self.task[self.policy == policy].tolist()) for policy in policies]
        return sorted(set.intersection(*of) if of else set(self.task.tolist()))

    def places(self, policy: str, task: str) -> NDArray[np.int_]:
        """Returns the places of a policy's trials on a task, in their order."""
        rows = np.flatnonzero((self.policy == policy) & (self.task == task))
        return rows[np.lexsort([self.pair[rows], self.order[rows]])]

    def differences(self, policy: str, other: str, outcome: str = "success") -> Numbers:
        """Returns the outcome of `policy` less that of `other`, of each pair of trials on one task, over all tasks in
        the order in which the pairs were complete: [n]. Trials of one `pair` belong together; where there are none, the
        k-th trials of the two on a task. The others are left out.
        """
        values, when = [np.zeros(0)], [np.zeros(0)]
        for task in self.tasks(policy, other):
            one, two = self.places(policy, task), self.places(other, task)
            if self.pair[one[0]]:
                _, first, second = np.intersect1d(self.pair[one], self.pair[two], return_indices=True)
                one, two = one[first], two[second]
            n = min(len(one), len(two))
            column = getattr(self, outcome)
            values.append(column[one[:n]] - column[two[:n]])
            when.append(np.maximum(self.order[one[:n]], self.order[two[:n]]))
        # Stable: at equal times in the order of the tasks' names.
        return np.concatenate(values)[np.argsort(np.concatenate(when), kind="stable")]

    def counts(self, policy: str, tasks: Sequence[str]) -> NDArray[np.int_]:
        """Returns successes and trials of a policy on each task, [2, tasks]."""
        cells = [self.success[(self.policy == policy) & (self.task == task)] for task in tasks]
        return np.array([[int(x.sum()) for x in cells], [len(x) for x in cells]])


def trial_row(row: Mapping[str, Any], columns: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Checks a trial of a file: `policy` is a name and `success` true or false; `task`, `order`, `pair` and `score` may
    be missing.

    Raises:
        MetricDataError: a column that is missing, a `success` that is neither, a number that is none.
    """
    names = column_names(COLUMNS, columns)
    found: dict[str, Any] = {}
    for name, otherwise in (("policy", None), ("task", "all"), ("pair", "")):
        text = str(row.get(names[name]) if row.get(names[name]) is not None else "").strip() or otherwise
        if text is None:
            raise MetricDataError(f"column {names[name]!r} is missing: a name")
        found[name] = text
    flag = row.get(names["success"])
    if str(flag).strip().lower() not in YES_AND_NO:
        fix = "; partial success belongs to the column score" if isinstance(flag, (int, float)) else ""
        raise MetricDataError(f"{names['success']} must be true or false, found {flag!r:.60}{fix}")
    found["success"] = YES_AND_NO[str(flag).strip().lower()]
    for name in ("order", "score"):
        found[name] = number_in(row, names[name], required=False)
    if found["score"] is not None and not 0 <= found["score"] <= 1:
        raise MetricDataError(f"{names['score']} must lie in [0, 1], found {found['score']:g}")
    return found


def policy_trials(rows: Iterable[tuple[int, Mapping[str, Any]]]) -> PolicyTrials:
    """Assembles trials.

    Raises:
        MetricDataError: an order in some rows only, or as `PolicyTrials`.
    """
    listed = list(rows)
    without = [number for number, row in listed if row["order"] is None]
    if without and len(without) < len(listed):
        raise MetricDataError(f"row {min(without)}: order is empty; give it in every row or in none")
    found: dict[str, Any] = {name: [row[name] for _, row in listed] for name in COLUMNS}
    return PolicyTrials(**found | {"order": None if without else found["order"]})


TRIAL_ROWS = RowFormat("trials of policies", COLUMNS, trial_row, policy_trials)
