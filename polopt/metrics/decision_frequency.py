"""Scores of policies that look at the state now and then, and act open loop in between."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def frequency_averaged_score(
    lengths: Sequence[int], returns: Sequence[float], *, largest: float, shift: float = 0.0
) -> float:
    """Returns the frequency-averaged score: the area under the curve of returns over the lengths of open-loop sequences
    of actions, by trapezoids, as a share of the largest return times the largest length,

        FAS = sum_i (l_(i+1) - l_i) (R_i + R_(i+1) + 2 shift) / 2 / (largest l_max)

    lengths: rising, at least 1; the authors take 1, 2, ..., 30, for which a policy of the largest return at any of them
    has 29 / 30. returns: mean return at each. largest: after the shift, a constant of the environment. shift: makes
    returns of an environment with costs positive.

    Raises:
        ValueError: fewer than two lengths, lengths that do not rise or are below 1, another number of returns, or
            largest <= 0.

    Source: Patel and Siegelmann 2024, arXiv 2410.08979, with the authors' program.
    """
    if len(lengths) < 2 or len(lengths) != len(returns):
        raise ValueError(
            f"frequency_averaged_score: need two lengths or more, and a return for each, found {len(lengths)} and "
            f"{len(returns)}"
        )
    if lengths[0] < 1 or min(np.diff(lengths)) <= 0:
        raise ValueError(f"frequency_averaged_score: lengths must be >= 1 and rise, found {[*lengths]}")
    if not largest > 0:
        raise ValueError(f"frequency_averaged_score: largest must be > 0, found {largest}")
    area = np.trapezoid(np.asarray(returns, dtype=np.float64) + shift, lengths)
    return float(area) / (largest * lengths[-1])
