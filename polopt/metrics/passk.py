"""Unbiased estimates of pass@k and pass^k from n samples of each problem."""

from __future__ import annotations

from typing import NamedTuple

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


class CapabilityFlow(NamedTuple):
    """Shares of problems that one policy solves and another does or does not; see `capability_flow`."""

    expansion: float
    preservation: float
    shrinkage: float
    unsolved: float


def capability_flow(before: ArrayLike, after: ArrayLike) -> CapabilityFlow:
    """Shares of problems that only the second of two policies solves, both, only the first, and neither.

    Args:
        before, after: [P], whether each problem is solved, or its chance in k attempts, as `pass_at_k` estimates; the
            attempts of the two are independent, so that the shares of such estimates are unbiased, too.

    Raises:
        ValueError: the two are of different or no problems, or a number outside 0..1.

    Source: arXiv:2508.19201, where the second policy has a tool.
    """
    a, b = np.asarray(before, float), np.asarray(after, float)
    if a.shape != b.shape or a.ndim != 1 or not a.size:
        raise ValueError(f"capability_flow: need as many problems of both, [P], found {a.shape} and {b.shape}")
    if not ((a >= 0) & (a <= 1) & (b >= 0) & (b <= 1)).all():
        raise ValueError("capability_flow: chances must be from 0 to 1")
    shares = ((1 - a) * b, a * b, a * (1 - b), (1 - a) * (1 - b))
    return CapabilityFlow(*(float(share.mean()) for share in shares))


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
