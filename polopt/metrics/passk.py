"""Unbiased estimates of pass@k and pass^k from n samples of each problem."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def pass_at_k(samples: ArrayLike, correct: ArrayLike, k: int) -> NDArray[np.float64]:
    """Probability that at least one of k samples is right: 1 - C(n-c, k) / C(n, k), for each problem.

    The estimate is the mean over all subsets of k of the n samples, hence unbiased. Computed as
    -expm1(sum_j log1p(-c / (n-j))), j < k, which neither overflows nor cancels.

    Args:
        samples: n, number of samples drawn, any shape [P] or a scalar.
        correct: c, number of those that are right, same shape.
        k: 1 <= k <= n for every problem.

    Raises:
        ValueError: k below 1 or above some n, or c outside 0..n.

    Source: Chen et al. 2021, "Evaluating Large Language Models Trained on Code", arXiv 2107.03374.
    """
    n, c = _counts(samples, correct, k)
    left = n[..., None] - np.arange(k)
    with np.errstate(divide="ignore"):  # log1p(-1) = -inf is intended: every subset holds a right sample
        log_fail = np.log1p(-np.minimum(c[..., None] / left, 1.0)).sum(-1)
    # + 0.0 turns the -0.0 of expm1(0) into 0.0.
    return -np.expm1(log_fail) + 0.0


def pass_all_k(samples: ArrayLike, correct: ArrayLike, k: int) -> NDArray[np.float64]:
    """Probability that all of k samples are right (pass^k): C(c, k) / C(n, k), for each problem.

    Arguments and errors as `pass_at_k`.

    Source: Yao et al. 2024, "tau-bench", arXiv 2406.12045.
    """
    n, c = _counts(samples, correct, k)
    offsets = np.arange(k)
    return np.prod(np.maximum(c[..., None] - offsets, 0.0) / (n[..., None] - offsets), axis=-1)


def _counts(samples: ArrayLike, correct: ArrayLike, k: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    n, c = np.broadcast_arrays(np.asarray(samples, float), np.asarray(correct, float))
    if n.size and not 1 <= k <= n.min():
        raise ValueError(f"pass@k: k must be from 1 to the fewest samples of a problem, {n.min():g}; found k = {k}")
    if (c < 0).any() or (c > n).any():
        raise ValueError(
            f"pass@k: correct must be from 0 to samples for every problem, "
            f"found {c[(c < 0) | (c > n)][0]:g} of {n[(c < 0) | (c > n)][0]:g}"
        )
    return n, c
