"""Correlations of two lists of numbers, not a number where one of them does not vary."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def pearson(x: ArrayLike, y: ArrayLike) -> float:
    """Returns Pearson's correlation, not a number where one side does not vary."""
    arrays = (np.asarray(z, float) for z in (x, y))
    one, other = (z - z.mean() for z in arrays)
    norm = float(np.sqrt((one @ one) * (other @ other)))
    return float(one @ other) / norm if norm > 0 else float("nan")


def rank_correlation(x: ArrayLike, y: ArrayLike) -> float:
    """Returns Spearman's correlation, not a number where one side does not vary."""
    from scipy.stats import rankdata  # slow to import

    return pearson(rankdata(x), rankdata(y))


def kendall_tau(one: ArrayLike, other: ArrayLike) -> float:
    """Returns Kendall's tau-b of two score lists [n], from -1 for opposite orders to 1; not a number where a list does
    not vary."""
    a, b = np.asarray(one, float), np.asarray(other, float)
    first, second = np.triu_indices(len(a), 1)
    x, y = np.sign(a[first] - a[second]), np.sign(b[first] - b[second])
    norm = np.sqrt(float(np.square(x).sum() * np.square(y).sum()))
    return float((x * y).sum() / norm) if norm > 0 else np.nan
