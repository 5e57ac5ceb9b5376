"""Cost of solving problems, in tokens instead of passes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def cost_curve(
    tokens: ArrayLike, solved: ArrayLike, *, stop: bool = True
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Computes the mean tokens generated for a problem, and the share of problems solved, after 1 to n passes, [n]
    each.

    Counting passes hides that one of them may cost ten times another. stop: passes are sequential, and a solved problem
    costs nothing more; otherwise the tokens of all passes count.

    Args:
        tokens: [problems, n] length of each pass, in the order in which they are made.
        solved: [problems, n] whether it solved the problem.

    Raises:
        ValueError: shapes that differ, or are not [problems, n] with a problem and a pass at least; a negative length.

    Source: the sampling cost of EconProver, arXiv:2509.12603.
    """
    cost, right = np.asarray(tokens, float), np.asarray(solved, bool)
    if cost.shape != right.shape or cost.ndim != 2 or not cost.size:
        raise ValueError(
            f"cost_curve: tokens and solved must be [problems, passes] alike, found {cost.shape} and {right.shape}"
        )
    if (cost < 0).any():
        raise ValueError(f"cost_curve: a pass has a length >= 0, found {cost.min():g}")
    known = np.logical_or.accumulate(right, axis=1)
    before = np.concatenate([np.zeros((len(known), 1), bool), known[:, :-1]], axis=1)
    charged = np.where(before, 0.0, cost) if stop else cost
    return charged.cumsum(1).mean(0), known.mean(0)
