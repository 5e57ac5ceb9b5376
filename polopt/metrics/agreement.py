"""Agreement of annotators beyond chance, and their preferences beside each other.

Source: Krippendorff, "Content Analysis", chapter on reliability; Cohen 1960, "A coefficient of agreement for nominal
scales".
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polopt.metrics.intervals import Interval, rate_interval, wilson
from polopt.metrics.preference_audit import PreferenceRow, plain_texts

Numbers = NDArray[np.float64]
# Below this alpha Krippendorff draws no conclusion from labels, not even a tentative one.
TENTATIVE = 0.667


def coincidences(ratings: ArrayLike) -> Numbers:
    """Returns each unit's coincidence matrix [N, K, K]: the ordered pairs of ratings of two annotators by their two
    values, each divided by the number of the unit's ratings less one; 0 for units with fewer than two.

    ratings: [N, M] of N units by M annotators, NaN where there is none. K values, in rising order.
    """
    x = np.asarray(ratings, float)
    values = np.unique(x[~np.isnan(x)])
    counts = (x[:, :, None] == values).sum(1).astype(float)
    pairs = counts[:, :, None] * counts[:, None, :] - counts[:, :, None] * np.eye(len(values))
    total = counts.sum(1)
    result: Numbers = np.where(total > 1, 1 / np.maximum(total - 1, 1), 0)[:, None, None] * pairs
    return result


def alpha_of(coincidence: Numbers) -> Numbers:
    """Returns Krippendorff's alpha [...] of coincidence matrices [..., K, K], NaN where all values are one.

    1 - D_o / D_e, with D_o the share of pairs of ratings that differ, and D_e that of all pairs of the ratings n:
    1 - sum_k n_k (n_k - 1) / (n (n - 1)).
    """
    each = coincidence.sum(-1)
    n = each.sum(-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        observed = 1 - np.trace(coincidence, axis1=-2, axis2=-1) / n
        expected = 1 - (each * (each - 1)).sum(-1) / (n * (n - 1))
        result: Numbers = np.where(expected > 0, 1 - observed / expected, np.nan)
    return result


def krippendorff_alpha(ratings: ArrayLike) -> float:
    """Returns Krippendorff's alpha of nominal ratings [N, M], NaN where an annotator gave none: 1 for full agreement, 0
    for that of chance. NaN without a unit of two ratings, or where all ratings are one value."""
    return float(alpha_of(coincidences(ratings).sum(0)))


def cohen_kappa(one: ArrayLike, other: ArrayLike) -> float:
    """Returns Cohen's kappa (p_o - p_e) / (1 - p_e) of two annotators' nominal ratings [N], of the units that both
    rated; p_e is the agreement of independent annotators with the same shares of each value. NaN where p_e is 1."""
    a, b = np.asarray(one, float), np.asarray(other, float)
    both = ~(np.isnan(a) | np.isnan(b))
    a, b = a[both], b[both]
    if not len(a):
        return float("nan")
    by_chance = sum(float((a == v).mean() * (b == v).mean()) for v in np.unique(np.concatenate([a, b])))
    return float("nan") if by_chance >= 1 else (float((a == b).mean()) - by_chance) / (1 - by_chance)


@dataclasses.dataclass(frozen=True, eq=False)
class PreferenceLabels:
    """Labels of N pairs of answers by M annotators.

    labels: [N, M] 1 where the annotator prefers the answer that the pair lists first, -1 for the second, NaN without a
    label. prompts: [N] numbers of the pairs' prompts, the independent units. names: M. counts: [M] rows of each.
    """

    labels: Numbers
    prompts: NDArray[np.int64]
    names: tuple[str, ...]
    counts: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class AnnotatorAgreement:
    """The agreement of annotators on which of two answers is better.

    names, counts: the annotators and their numbers of rows. shared: pairs that two or more of them labelled.
    alpha: Krippendorff's alpha of all labels, None without shared pairs. kappa: Cohen's kappa of each two annotators
    with shared pairs. with_others: of each annotator, the rate at which others' labels of the same pairs equal its own.
    The n of the intervals are numbers of prompts.

    Which answer a pair lists first has no meaning, so every pair counts in both orders, and chance agrees on half.
    """

    names: tuple[str, ...]
    counts: tuple[int, ...]
    shared: int
    alpha: Interval | None
    kappa: Mapping[tuple[str, str], Interval]
    with_others: Mapping[str, Interval]

    def record(self) -> dict[str, Any]:
        """Returns plain data."""
        return {
            "annotators": dict(zip(self.names, self.counts, strict=True)),
            "shared_pairs": self.shared,
            "krippendorff_alpha": None if self.alpha is None else dataclasses.asdict(self.alpha),
            "cohen_kappa": [
                {"annotators": list(pair), **dataclasses.asdict(kappa)} for pair, kappa in self.kappa.items()
            ],
            "agreement_with_others": {name: dataclasses.asdict(x) for name, x in self.with_others.items()},
        }

    def cautions(self) -> list[str]:
        """Returns sentences on what the agreement means for training."""
        if self.alpha is None:
            return ["no pair is labelled by two annotators, so their agreement is not known"]
        if self.alpha.estimate >= TENTATIVE:
            return []
        return [
            f"annotators agree little: Krippendorff's alpha is {self.alpha.estimate:.2f}, below the {TENTATIVE} that "
            "is taken as the least for tentative conclusions"
        ]


def annotator_agreement(
    data: PreferenceLabels, *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> AnnotatorAgreement:
    """Measures how far annotators agree.

    Intervals: alpha's is a percentile bootstrap over prompts, and where no two labels differ that of Wilson for the
    rate of agreement a, 2 a - 1; kappa is 2 a - 1 with a the mean over prompts of the rate of agreement.
    """
    x = data.labels
    shared = (~np.isnan(x)).sum(1) > 1
    both_orders = coincidences(np.concatenate([x, -x])).reshape(2, len(x), 2, 2).sum(0) if shared.any() else None
    kappa, with_others = dict[tuple[str, str], Interval](), dict[str, Interval]()
    for i, j in itertools.combinations(range(x.shape[1]), 2):
        rates = _by_prompt([(x[:, i] == x[:, j], ~np.isnan(x[:, i] + x[:, j]))], data.prompts)
        if rates:
            a = rate_interval(rates, level)
            ends = {name: 2 * getattr(a, name) - 1 for name in ("estimate", "low", "high")}
            kappa[data.names[i], data.names[j]] = Interval(**ends, level=level, n=a.n)
    for i, name in enumerate(data.names):
        others = [j for j in range(x.shape[1]) if j != i]
        rates = _by_prompt([(x[:, i] == x[:, j], ~np.isnan(x[:, i] + x[:, j])) for j in others], data.prompts)
        if rates:
            with_others[name] = rate_interval(rates, level)
    alpha = None if both_orders is None else _alpha(both_orders[shared], data.prompts[shared], level, resamples, seed)
    return AnnotatorAgreement(data.names, data.counts, int(shared.sum()), alpha, kappa, with_others)


def pair_places(rows: Sequence[PreferenceRow]) -> tuple[NDArray[np.int64], Numbers]:
    """Returns the number of each row's pair of answers [R], from 0, and 1 where the row prefers the answer that the
    pair's first row prefers, -1 where the other [R]. Texts are compared without regard to case and white space."""
    known: dict[tuple[str, frozenset[str]], tuple[int, str]] = {}
    number, sign = [], []
    for row in rows:
        prompt, chosen, rejected = plain_texts(row)
        i, first = known.setdefault((prompt, frozenset((chosen, rejected))), (len(known), chosen))
        number.append(i)
        sign.append(1.0 if chosen == first else -1.0)
    return np.array(number, dtype=np.int64), np.array(sign)


def preference_labels(rows: Sequence[PreferenceRow]) -> PreferenceLabels:
    """Assembles the labels of rows with an annotator; one who labelled a pair several times has the label of the
    majority, none at a tie.

    Raises:
        ValueError: a row without annotator, or no rows.
    """
    if not rows or any(row.annotator is None for row in rows):
        raise ValueError("preference_labels: every row needs an annotator, and there must be one row at least")
    names = tuple(sorted({str(row.annotator) for row in rows}))
    column = {name: j for j, name in enumerate(names)}
    number, sign = pair_places(rows)
    votes = np.zeros((int(number.max()) + 1, len(names)))
    who = np.array([column[str(row.annotator)] for row in rows])
    np.add.at(votes, (number, who), sign)
    known: dict[str, int] = {}
    prompts = np.zeros(len(votes), dtype=np.int64)
    for row, i in zip(rows, number.tolist(), strict=True):
        prompts[i] = known.setdefault(plain_texts(row)[0], len(known))
    counts = tuple(np.bincount(who, minlength=len(names)).tolist())
    return PreferenceLabels(np.where(votes == 0, np.nan, np.sign(votes)), prompts, names, counts)


def _by_prompt(
    compared: Sequence[tuple[NDArray[np.bool_], NDArray[np.bool_]]], prompts: NDArray[np.int64]
) -> list[float]:
    """Returns the rate of agreement of each prompt. compared: of two annotators each, where they agree and where both
    labelled, [N] each."""
    found: dict[int, list[float]] = defaultdict(list)
    for same, known in compared:
        for prompt, value in zip(prompts[known].tolist(), same[known].tolist(), strict=True):
            found[prompt].append(float(value))
    return [sum(values) / len(values) for values in found.values()]


def _alpha(each: Numbers, prompts: NDArray[np.int64], level: float, resamples: int, seed: int) -> Interval:
    number = np.unique(prompts, return_inverse=True)[1]
    P = int(number.max()) + 1
    by_prompt = np.zeros((P, 4))
    np.add.at(by_prompt, number, each.reshape(-1, 4))
    estimate = float(alpha_of(by_prompt.sum(0).reshape(2, 2)))
    if estimate == 1:
        return Interval(1.0, 2 * wilson(P, P, level).low - 1, 1.0, level, P)
    times = np.random.default_rng(seed).multinomial(P, np.full(P, 1 / P), size=resamples)
    drawn = alpha_of((times @ by_prompt).reshape(-1, 2, 2))
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(estimate, float(low), float(high), level, P)
