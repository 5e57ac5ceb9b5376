"""Annotators' preferences against principles: where principles decide, where they conflict, and which of them win.

Source: AI Alignment at Your Discretion, arXiv:2502.10441.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polopt.metrics.row_format import MetricDataError, RowFormat, column_names, number_in

Numbers = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, eq=False)
class PrinciplePreferences:
    """N comparisons of two answers: 1 where the first is preferred, -1 where the second is, NaN or 0 for neither.

    principles: [N, K] preferences by each principle alone. annotators: [N, M] the annotators' labels, which may be
    people, reward models or policies. principle_names, annotator_names: K and M of them.

    Raises:
        MetricDataError: shapes or names that do not fit, or values other than 1, -1, 0 and NaN.
    """

    principles: Numbers
    annotators: Numbers
    principle_names: tuple[str, ...] = ()
    annotator_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, label in (("principles", "principle"), ("annotators", "annotator")):
            x = np.asarray(getattr(self, name), float)
            if x.ndim != 2 or not x.size:
                raise MetricDataError(
                    f"PrinciplePreferences: {name} must be [N, K], N and K >= 1, found {list(x.shape)}"
                )
            x = np.where(x == 0, np.nan, x)
            if not np.isin(x[~np.isnan(x)], (-1, 1)).all():
                raise MetricDataError(
                    f"PrinciplePreferences: {name} must be 1, -1, or 0 or NaN for neither; take the sign of scores, "
                    "averaged over both orders of the answers"
                )
            names = tuple(getattr(self, f"{label}_names")) or tuple(f"{label} {i + 1}" for i in range(x.shape[1]))
            if len(names) != x.shape[1] or len(set(names)) < len(names):
                raise MetricDataError(
                    f"PrinciplePreferences: {label}_names must be {x.shape[1]} different names, found {len(names)}"
                )
            object.__setattr__(self, name, x)
            object.__setattr__(self, f"{label}_names", names)
        if len(self.principles) != len(self.annotators):
            raise MetricDataError(
                f"PrinciplePreferences: principles and annotators must have one N, found {len(self.principles)} and "
                f"{len(self.annotators)}"
            )

    def __len__(self) -> int:
        return len(self.principles)

    def __getitem__(self, rows: Sequence[int] | NDArray[np.int64]) -> PrinciplePreferences:
        return dataclasses.replace(self, principles=self.principles[rows], annotators=self.annotators[rows])


def both_orders(first: ArrayLike, swapped: ArrayLike) -> Numbers:
    """Returns the preference of a judge that was shown two answers in both orders: its own where the two agree, NaN
    where they differ or one is NaN. A judge that prefers a place has no preference.

    first, swapped: 1, -1, 0 or NaN, of one shape; of `swapped` 1 is for the answer that was shown first in it.
    """
    one, other = np.asarray(first, float), -np.asarray(swapped, float)
    return np.where((one == other) & (one != 0), one, np.nan)


def consensus(principles: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Returns the preference that all principles with one share, [N], NaN in other cases; and which cases are conflicts
    and indifferent, [N] of 0 and 1."""
    known = ~np.isnan(principles)
    least, most = np.where(known, principles, np.inf).min(1), np.where(known, principles, -np.inf).max(1)
    decided = known.any(1) & (least == most)
    return np.where(decided, least, np.nan), (least < most).astype(float), (~known.any(1)).astype(float)


def wins(principles: Numbers, annotator: Numbers, weight: Numbers | None = None) -> Numbers:
    """Returns [K, K] the number of cases in which principles i and j conflict and the annotator sides with i. Supremacy
    of i over j is the count divided by that of both directions.

    weight: [N] how often each case counts, None: once.
    """
    signed = principles * annotator[:, None]
    with_i, against = (signed > 0).astype(float), (signed < 0).astype(float)
    result: Numbers = (with_i if weight is None else with_i * weight[:, None]).T @ against
    return result


@dataclasses.dataclass(frozen=True, eq=False)
class Priorities:
    """Bradley-Terry weights of K principles, from counts of wins.

    weight: [K] in nats, mean 0 in the largest set of principles that all win and lose against each other, directly or
    through others; inf for those that it never beats, -inf for those that never beat it, NaN for principles without
    conflicts. tier: [K] 0 for principles that no other tier beats, then 1, ...; -1 without conflicts. rank: [K] 1 for
    the first, by tier and weight, with means at ties, NaN without conflicts. connected: each tier is one such set, so
    that its order is known.
    """

    weight: Numbers
    tier: NDArray[np.int64]
    rank: Numbers
    connected: bool


def priorities(counts: ArrayLike) -> Priorities:
    """Fits P(i wins over j) = sigmoid(w_i - w_j) by maximum likelihood to counts [K, K] of wins of i over j.

    The maximum is finite exactly within sets of principles that win and lose in a circle; between such sets it is
    infinite, and their order is that of the wins, which all go one way.

    Raises:
        ValueError: counts that are not [K, K], finite and >= 0.
    """
    from scipy.sparse.csgraph import connected_components
    from scipy.stats import rankdata

    n = np.array(counts, float)
    if n.ndim != 2 or n.shape[0] != n.shape[1] or not n.size or not np.isfinite(n).all() or (n < 0).any():
        raise ValueError(f"priorities: counts must be [K, K], finite and >= 0, found {list(n.shape)}")
    np.fill_diagonal(n, 0)
    K = len(n)
    total, label = connected_components(n > 0, directed=True, connection="strong")
    level = _levels(n > 0, label, total)
    known = (n + n.T).any(1)
    weight = np.zeros(K)
    for part in range(total):
        members = np.flatnonzero(label == part)
        weight[members] = _fit(n[np.ix_(members, members)])
    tier = np.where(known, level[label], -1)
    order = np.stack([tier, -weight], 1)[known]
    rank = np.full(K, np.nan)
    if known.any():
        # Rounding must not order equal weights.
        _, place = np.unique(np.round(order, 9), axis=0, return_inverse=True)
        rank[known] = rankdata(place.ravel())
        # Places 0 to total - 1 of the tiers that are there.
        tier[known] = np.unique(tier[known], return_inverse=True)[1]
    sizes = [
        (int((label == part).sum()), -int(level[part]), part) for part in range(total) if known[label == part].any()
    ]
    main = max(sizes)[2] if sizes else 0
    above = np.where(level[label] < level[main], np.inf, -np.inf)
    shown = np.where(level[label] == level[main], weight, above)
    sets = {(int(t), int(part)) for t, part in zip(tier[known], label[known], strict=True)}
    return Priorities(
        np.where(known, shown, np.nan), tier.astype(np.int64), rank, len(sets) == len({t for t, _ in sets})
    )


def _levels(beats: NDArray[np.bool_], label: NDArray[np.int32], total: int) -> NDArray[np.int64]:
    """Returns the length of the longest chain of wins that ends at each component, [total]."""
    edges = np.zeros((total, total), dtype=bool)
    for i, j in zip(*np.nonzero(beats), strict=True):
        edges[label[i], label[j]] |= label[i] != label[j]
    level = np.zeros(total, np.int64)
    for _ in range(total):
        level = np.array([max((level[a] + 1 for a in np.flatnonzero(edges[:, b])), default=0) for b in range(total)])
    return level


def _fit(n: Numbers) -> Numbers:
    """Returns the weights of one set, of mean 0: Newton's method with halved steps on a convex function."""
    K, games = len(n), n + n.T
    w = np.zeros(K)

    def loss(w: Numbers) -> float:
        return float((n * np.logaddexp(0, w[None] - w[:, None])).sum())

    for _ in range(100 if K > 1 else 0):
        p = 1 / (1 + np.exp(w[None] - w[:, None]))
        slope = (games * p - n).sum(1)
        if np.abs(slope).max() <= 1e-10 * games.sum():
            break
        curve = -games * p * (1 - p)
        np.fill_diagonal(curve, -curve.sum(1))
        step = -np.linalg.solve(curve + np.ones((K, K)), slope)
        while loss(w + step) > loss(w) and np.abs(step).max() > 1e-12:
            step = step / 2
        w = w + step
    result: Numbers = w - w.mean()
    return result


def discretion_discrepancy(one: ArrayLike, other: ArrayLike) -> float:
    """Returns (1 - Kendall's tau-b) / 2 of two rankings [K], in [0, 1]: 0 for one order, 1 for the reverse. Principles
    without a rank in one of them are left out; NaN where fewer than two are left, or all of them are tied."""
    from scipy.stats import kendalltau

    a, b = np.asarray(one, float), np.asarray(other, float)
    both = ~(np.isnan(a) | np.isnan(b))
    if both.sum() < 2:
        return float("nan")
    return float((1 - kendalltau(a[both], b[both]).statistic) / 2)


GROUPS = ("principles", "annotators")


def comparison_row(row: Mapping[str, Any], columns: Mapping[str, str] | None = None) -> dict[str, dict[str, float]]:
    """Checks a comparison of a file: `principles` and `annotators` are objects of names and preferences, as
    {"honesty": 1, "safety": -1, "brevity": null}; in a table, columns `principles.honesty`.

    Raises:
        MetricDataError: a group that is missing, or a value other than 1, -1, 0 and none.
    """
    names = column_names(GROUPS, columns)
    found: dict[str, dict[str, float]] = {}
    for group in GROUPS:
        name = names[group]
        inside = row.get(name)
        prefix = f"{name}."
        flat = {key[len(prefix) :]: value for key, value in row.items() if key.startswith(prefix)}
        votes = dict(inside) if isinstance(inside, Mapping) else flat
        if not votes:
            raise MetricDataError(f"{name} is missing: an object of names and preferences, or columns {name}.NAME")
        found[group] = {}
        for key in votes:
            value = number_in(votes, key, required=False)
            if value not in (None, 0, 1, -1):
                raise MetricDataError(f"{name}.{key} must be 1, -1, or 0 or empty for neither, found {value:g}")
            found[group][str(key)] = float("nan") if value is None else value
    return found


def principle_preferences(rows: Iterable[tuple[int, Mapping[str, Mapping[str, float]]]]) -> PrinciplePreferences:
    """Assembles comparisons; a name that a row does not have has no preference in it.

    Raises:
        MetricDataError: there are no rows.
    """
    ordered = [row for _, row in rows]
    if not ordered:
        raise MetricDataError("there are no comparisons; give one a row")
    names = [tuple(dict.fromkeys(name for row in ordered for name in row[group])) for group in GROUPS]
    tables = [
        np.array([[row[group].get(name, np.nan) for name in known] for row in ordered])
        for group, known in zip(GROUPS, names, strict=True)
    ]
    return PrinciplePreferences(tables[0], tables[1], names[0], names[1])


COMPARISON_ROWS = RowFormat("comparisons by principles", GROUPS, comparison_row, principle_preferences)
