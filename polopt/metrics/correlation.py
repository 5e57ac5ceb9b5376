"""Correlations of two lists of numbers, not a number where one of them does not vary."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Numbers = NDArray[np.float64]


def pearson(x: ArrayLike, y: ArrayLike) -> float:
    """Returns Pearson's correlation, not a number where one side does not vary."""
    return float(correlations(x, y))


def rank_correlation(x: ArrayLike, y: ArrayLike) -> float:
    """Returns Spearman's correlation, not a number where one side does not vary."""
    return float(rank_correlations(x, y))


def correlations(x: ArrayLike, y: ArrayLike) -> Numbers:
    """Returns Pearson's correlation of each row of [..., n], not numbers where one side does not vary."""
    arrays = (np.asarray(z, float) for z in (x, y))
    one, other = (z - z.mean(-1, keepdims=True) for z in arrays)
    norm = np.sqrt((one * one).sum(-1) * (other * other).sum(-1))
    found: Numbers = (one * other).sum(-1) / np.where(norm > 0, norm, np.nan)
    return found


def rank_correlations(x: ArrayLike, y: ArrayLike) -> Numbers:
    """Returns Spearman's correlation of each row of [..., n], not numbers where one side does not vary."""
    from scipy.stats import rankdata  # slow to import

    return correlations(rankdata(x, axis=-1), rankdata(y, axis=-1))


def kendall_tau(one: ArrayLike, other: ArrayLike) -> float:
    """Returns Kendall's tau-b of two score lists [n], from -1 for opposite orders to 1; not a number where a list does
    not vary."""
    a, b = np.asarray(one, float), np.asarray(other, float)
    first, second = np.triu_indices(len(a), 1)
    x, y = np.sign(a[first] - a[second]), np.sign(b[first] - b[second])
    norm = np.sqrt(float(np.square(x).sum() * np.square(y).sum()))
    return float((x * y).sum() / norm) if norm > 0 else np.nan
