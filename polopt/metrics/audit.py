"""Error rates of a verifier, from answers whose correctness is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from polopt.metrics.intervals import Interval, wilson


class VerifierErrors(NamedTuple):
    """Error rates of a verifier.

    false_positive: the fraction of wrong answers that it accepts. false_negative: the fraction of right ones that it
    rejects. None where the sample has no such answers. accepted: the fraction of the sample that it accepts.
    """

    false_positive: Interval | None
    false_negative: Interval | None
    accepted: Interval


def audit_verifier(
    verdict: ArrayLike,
    truth: ArrayLike,
    level: float = 0.95,
    interval: Callable[[float, int, float], Interval] = wilson,
) -> VerifierErrors:
    """Estimates the error rates of a verifier with their intervals.

    Args:
        verdict: [n] 1 where it accepts, 0 where it does not. truth: [n] 1 where the answer is right, 0 where not.
        interval: `wilson`, or `clopper_pearson`, which never covers less than `level` and is wider.

    Rows must be drawn independently, one for each prompt; and the rates hold for answers like these alone: a policy
    that learns from the verifier looks for those that it gets wrong.

    Raises:
        ValueError: shapes that are not both [n], n < 1, or values other than 0 and 1.
    """
    verdicts, truths = np.asarray(verdict, dtype=float), np.asarray(truth, dtype=float)
    if verdicts.ndim != 1 or verdicts.shape != truths.shape or not len(verdicts):
        raise ValueError(
            f"audit_verifier: verdict and truth must both be [n], n >= 1, found {list(verdicts.shape)} and "
            f"{list(truths.shape)}"
        )
    if not (np.isin(verdicts, (0, 1)).all() and np.isin(truths, (0, 1)).all()):
        raise ValueError("audit_verifier: verdict and truth must be 0 or 1; compare a score with a threshold first")

    def rate(wrong: np.ndarray) -> Interval | None:
        return interval(float(wrong.sum()), len(wrong), level) if len(wrong) else None

    accepted = rate(verdicts)
    assert accepted is not None
    return VerifierErrors(rate(verdicts[truths == 0]), rate(1 - verdicts[truths == 1]), accepted)
