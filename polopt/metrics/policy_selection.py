"""Several target policies on one log: which of them is better than the policy that wrote it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from polopt.metrics.compare import holm
from polopt.metrics.intervals import Interval, t_interval
from polopt.metrics.metric import Measured


@dataclasses.dataclass(frozen=True)
class CandidatePolicy:
    """One target policy.

    value: the estimate.
    gain: the estimate minus the log's mean return, from the differences by episode.
    p: of a gain of 0 or less.
    better: whether the gain is above 0 after Holm's correction for all candidates.
    """

    name: str
    value: Interval
    gain: Interval
    p: float
    better: bool


@dataclasses.dataclass(frozen=True)
class PolicySelection:
    """The candidates in order of their values' lower ends.

    chosen: the first of those that are better than the logging policy, None if there are none: then the log gives no
    reason to change the policy.
    """

    candidates: tuple[CandidatePolicy, ...]
    chosen: str | None


def select_policy(found: Mapping[str, Measured], level: float = 0.95) -> PolicySelection:
    """Compares target policies with the one that wrote the log, each by its own estimate of the same log.

    found: results of an off-policy estimator by the policy's name. The p value is that of a t test of the episodes'
    terms minus their logged returns, one-sided; it contains no error of a fitted model.

    Raises:
        ValueError: no policies, or a result without terms by episode.
    """
    if not found:
        raise ValueError("select_policy: give one policy or more, found none")
    rows = []
    for name, measured in found.items():
        if not {"value", "logged"} <= measured.rows.keys() or "estimate" not in measured.intervals:
            raise ValueError(
                f"select_policy: the result of {name!r:.60} has no terms by episode; give one of an estimator"
            )
        gain = measured.rows["value"] - measured.rows["logged"]
        rows.append((name, measured.intervals["estimate"], t_interval(gain, level), _p_value(gain)))
    better = holm([p for *_, p in rows], 1 - level)
    candidates = [CandidatePolicy(*row, flag) for row, flag in zip(rows, better, strict=True)]
    candidates.sort(key=lambda one: (-one.value.low, one.name))
    chosen = next((one.name for one in candidates if one.better), None)
    return PolicySelection(tuple(candidates), chosen)


def _p_value(gain: np.ndarray) -> float:
    """Returns the p value of a mean of 0 or less."""
    if len(gain) < 2 or np.ptp(gain) == 0:
        return 0.0 if len(gain) > 1 and gain[0] > 0 else 1.0
    from scipy import stats

    return float(stats.ttest_1samp(gain, 0.0, alternative="greater").pvalue)
