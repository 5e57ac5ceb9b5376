"""Metrics of a classifier for rare classes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike


def balanced_accuracy(predicted: ArrayLike, truth: ArrayLike) -> float:
    """Mean recall over the classes that occur in `truth` [n], for the predictions `predicted` [n].

    Always predicting the most frequent of K classes gives 1 / K. A label that belongs to no class, such as that of an
    answer that could not be parsed, is wrong. NaN without rows.

    Raises:
        ValueError: shapes that are not both [n].
    """
    predictions, labels = np.asarray(predicted), np.asarray(truth)
    _check(predictions, labels, "balanced_accuracy: predicted")
    found = [float((predictions[labels == label] == label).mean()) for label in np.unique(labels)]
    return sum(found) / len(found) if found else math.nan


def average_precision(score: ArrayLike, truth: ArrayLike) -> float:
    """Area under the precision-recall curve: the mean precision at each threshold, weighted by its gain in recall.

    Args:
        score: [n] higher is more likely positive; rows of one score are taken together. truth: [n] 1 or 0.

    An uninformative score has the share of positives for its expectation. NaN without positives.

    Raises:
        ValueError: shapes that are not both [n], or a score that is not a number.
    """
    x, y = np.asarray(score, dtype=float), np.asarray(truth, dtype=float)
    _check(x, y, "average_precision: score")
    if np.isnan(x).any():
        raise ValueError("average_precision: score must be numbers, found NaN")
    if not y.sum():
        return math.nan
    order = np.argsort(-x, kind="stable")
    last = np.append(np.diff(x[order]) != 0, True)
    right, taken = y[order].cumsum()[last], np.arange(1, len(x) + 1)[last]
    return float((np.diff(right, prepend=0) * right / taken).sum() / y.sum())


def implied_false_positive_rate(
    base_rate: ArrayLike, precision: ArrayLike, false_negative_rate: ArrayLike
) -> np.ndarray:
    """Returns the false positive rate of a classifier, which the other three numbers fix:

        FPR = p / (1 - p) (1 - PPV) / PPV (1 - FNR),

    with p the base rate, the share of positives. Of two groups with different base rates, equal precision and equal
    false negative rates force unequal false positive rates, unless prediction is perfect.

    Raises:
        ValueError: a base rate outside (0, 1), a precision outside (0, 1], or a false negative rate outside [0, 1].

    Source: Chouldechova 2017, "Fair Prediction with Disparate Impact", Big Data 5.
    """
    p, ppv, fnr = (np.asarray(x, dtype=float) for x in (base_rate, precision, false_negative_rate))
    if not ((p > 0) & (p < 1)).all() or not ((ppv > 0) & (ppv <= 1)).all() or not ((fnr >= 0) & (fnr <= 1)).all():
        raise ValueError(
            "implied_false_positive_rate: base_rate must be in (0, 1), precision in (0, 1] and false_negative_rate in "
            "[0, 1]"
        )
    return np.asarray(p / (1 - p) * (1 - ppv) / ppv * (1 - fnr))


def f1_score(true_positives: ArrayLike, false_positives: ArrayLike, false_negatives: ArrayLike) -> np.ndarray:
    """Harmonic mean of precision and recall, 2 TP / (2 TP + FP + FN), from counts [...]; 0 where all three are 0."""
    tp, fp, fn = (np.asarray(x, dtype=float) for x in (true_positives, false_positives, false_negatives))
    total = 2 * tp + fp + fn
    return np.divide(2 * tp, total, out=np.zeros(total.shape), where=total > 0)


def _check(x: np.ndarray, truth: np.ndarray, name: str) -> None:
    if x.ndim != 1 or x.shape != truth.shape:
        raise ValueError(f"{name} and truth must both be [n], found {list(x.shape)} and {list(truth.shape)}")
