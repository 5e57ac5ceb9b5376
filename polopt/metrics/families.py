"""Scores of methods over a family of environments, and estimates of a method's mean score from a few of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polopt.metrics.row_format import MetricDataError, RowFormat, column_names, name_in, number_in

Numbers = NDArray[np.float64]
COLUMNS = ("method", "setting", "score", "seed", "mass", "reference", "best")
# Prefix of the columns of a file that describe a setting in numbers.
FEATURE = "feature_"
Choice = Literal["random", "subset", "stratified", "medoids"]
CHOICES: tuple[Choice, ...] = get_args(Choice)


@dataclasses.dataclass(frozen=True, eq=False)
class FamilyScores:
    """N scores, of methods that were trained and evaluated in one setting of the environment each; arrays or lists.

    method, setting: names, [N]. score: the higher the better, [N]. seed: of the training, None where there is one.
    features: numbers that describe the setting, [N, F] or None. mass: of the setting in the family, any positive
    scale; None for equal ones. reference, best: fixed scores of the setting that are mapped to 0 and 1; None for scores
    as they are.

    Raises:
        MetricDataError: arrays of different lengths or without rows, numbers that are not finite, a setting with two
            masses, references or features, a method without some of the settings, or a seed that is there twice.
    """

    method: Any
    setting: Any
    score: Any
    seed: Any = None
    features: Any = None
    mass: Any = None
    reference: Any = None
    best: Any = None

    def __post_init__(self) -> None:
        n = len(np.atleast_1d(np.asarray(self.method)))
        object.__setattr__(self, "method", np.asarray(self.method, str))
        object.__setattr__(self, "setting", np.asarray([str(x) for x in self.setting], str))
        object.__setattr__(
            self, "seed", np.asarray(["0"] * n if self.seed is None else [str(x) for x in self.seed], str)
        )
        for name, default in (("score", None), ("mass", 1.0), ("reference", 0.0), ("best", 1.0)):
            value = getattr(self, name)
            object.__setattr__(self, name, np.full(n, default) if value is None else np.asarray(value, float))
        features = np.zeros((n, 0)) if self.features is None else np.asarray(self.features, float).reshape(n, -1)
        object.__setattr__(self, "features", features)
        shapes = {f.name: getattr(self, f.name).shape[:1] for f in dataclasses.fields(self)}
        if not n or any(shape != (n,) for shape in shapes.values()):
            raise MetricDataError(f"FamilyScores: every column must be [N] with N >= 1, found {shapes}")
        for name in ("score", "mass", "reference", "best", "features"):
            if not np.isfinite(getattr(self, name)).all():
                raise MetricDataError(f"FamilyScores: {name} must be finite numbers")
        if (self.mass <= 0).any() or (self.reference == self.best).any():
            raise MetricDataError("FamilyScores: mass must be > 0, and reference and best of a setting must differ")
        self._check()

    def _check(self) -> None:
        first: dict[str, tuple[float, ...]] = {}
        fixed = np.column_stack([self.mass, self.reference, self.best, self.features])
        for setting, values in zip(self.setting.tolist(), map(tuple, fixed.tolist()), strict=True):
            if first.setdefault(setting, values) != values:
                raise MetricDataError(
                    f"setting {setting!r:.60} has two masses, references, bests or features; a setting has one of each"
                )
        seen: set[tuple[str, str, str]] = set()
        for key in zip(self.method.tolist(), self.setting.tolist(), self.seed.tolist(), strict=True):
            if key in seen:
                raise MetricDataError(f"method {key[0]!r:.60}, setting {key[1]!r:.60} has seed {key[2]!r:.60} twice")
            seen.add(key)
        pairs = {key[:2] for key in seen}
        for method in self.methods:
            if lacking := [setting for setting in self.settings if (method, setting) not in pairs]:
                raise MetricDataError(
                    f"method {method!r:.60} has no score in setting {lacking[0]!r:.60}; methods are compared on the "
                    "same settings"
                )

    def __len__(self) -> int:
        return len(self.method)

    def __getitem__(self, rows: Sequence[int] | NDArray[Any]) -> FamilyScores:
        return FamilyScores(**{f.name: getattr(self, f.name)[rows] for f in dataclasses.fields(self)})

    @property
    def methods(self) -> list[str]:
        """Returns the methods' names, in order."""
        return sorted(set(self.method.tolist()))

    @property
    def settings(self) -> list[str]:
        """Returns the settings' names, in order."""
        return sorted(set(self.setting.tolist()))

    def weights(self) -> Numbers:
        """Returns the settings' shares of the family, [settings]."""
        mass = np.array([self.mass[self.setting == setting][0] for setting in self.settings])
        return mass / mass.sum()

    def setting_features(self) -> Numbers:
        """Returns the settings' features, [settings, F]."""
        return np.array([self.features[self.setting == setting][0] for setting in self.settings])

    def scores(self) -> list[list[Numbers]]:
        """Returns the normalised scores of the seeds, by method and setting."""
        normal = (self.score - self.reference) / (self.best - self.reference)
        order = np.argsort(self.seed, kind="stable")
        return [
            [normal[order][((self.method == m) & (self.setting == s))[order]] for s in self.settings]
            for m in self.methods
        ]

    def means(self) -> Numbers:
        """Returns the mean normalised scores, [methods, settings]."""
        return np.array([[float(each.mean()) for each in row] for row in self.scores()])


def clusters(features: ArrayLike, weights: ArrayLike, n: int, seed: int = 0) -> NDArray[np.int64]:
    """Returns the cluster of each setting, [S] of 0 to n - 1: Lloyd's weighted k-means on standardised features, begun
    at settings that are drawn by their squared distance from those before (k-means++).

    features: [S, F]. weights: [S].
    """
    x, w = np.asarray(features, float), np.asarray(weights, float)
    spread = x.std(0)
    x = (x - x.mean(0)) / np.where(spread > 0, spread, 1.0)
    draw = np.random.default_rng(seed)
    chosen = [int(draw.choice(len(x), p=w / w.sum()))]
    while len(chosen) < n:
        far = np.square(x[:, None] - x[chosen]).sum(-1).min(1) * w
        left = np.setdiff1d(np.arange(len(x)), chosen)
        chosen.append(int(draw.choice(len(x), p=far / far.sum())) if far.sum() > 0 else int(left[0]))
    centres = x[chosen]
    found = np.full(len(x), -1)
    for _ in range(100):
        nearest = np.square(x[:, None] - centres).sum(-1).argmin(1)
        if (nearest == found).all():
            break
        found = nearest
        for c in range(n):
            if (found == c).any():
                centres[c] = np.average(x[found == c], axis=0, weights=w[found == c])
    return np.unique(found, return_inverse=True)[1].astype(np.int64)


def choose_settings(
    features: ArrayLike, weights: ArrayLike, n: int, how: Choice, seed: int = 0
) -> tuple[NDArray[np.int64], Numbers]:
    """Returns n settings, or fewer where clusters are empty, to train in, and their weights, which add up to 1: the
    estimate of a method's mean score in the family is sum_c weight_c score_c.

    random: drawn with replacement by their shares, equal weights. subset: drawn without replacement, equally likely,
    weights by their shares. stratified: one of each of n clusters, drawn by its share of it, with the cluster's share
    as its weight. medoids: of each cluster the setting that is nearest to the cluster's mean, with the same weight.
    random and stratified are unbiased; medoids vary least where scores are smooth in the features.

    Raises:
        ValueError: n outside 1 to the number of settings, or an unknown way.
    """
    x, w = np.asarray(features, float), np.asarray(weights, float)
    w = w / w.sum()
    if not 1 <= n <= len(w):
        raise ValueError(f"choose_settings: n must be from 1 to {len(w)} settings, found {n}")
    if how not in CHOICES:
        raise ValueError(f"choose_settings: how must be one of {', '.join(CHOICES)}, found {how!r:.60}")
    draw = np.random.default_rng(seed)
    if how == "random":
        return draw.choice(len(w), n, p=w), np.full(n, 1 / n)
    if how == "subset":
        chosen = draw.choice(len(w), n, replace=False)
        return chosen, w[chosen] / w[chosen].sum()
    group = clusters(x, w, n, int(draw.integers(2**31)))
    spread = x.std(0)
    x = (x - x.mean(0)) / np.where(spread > 0, spread, 1.0)
    picked, shares = [], []
    for c in range(group.max() + 1):
        inside = np.flatnonzero(group == c)
        share = w[inside]
        if how == "stratified":
            picked.append(int(draw.choice(inside, p=share / share.sum())))
        else:
            centre = np.average(x[inside], axis=0, weights=share)
            picked.append(int(inside[np.square(x[inside] - centre).sum(-1).argmin()]))
        shares.append(float(share.sum()))
    return np.array(picked), np.array(shares)


def family_row(row: Mapping[str, Any], columns: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Checks one score of a file. `feature_NAME` columns describe the setting in numbers; `seed`, `mass`, `reference`
    and `best` may be missing.

    Raises:
        MetricDataError: a column that is missing, or no number.
    """
    names = column_names(COLUMNS, columns)
    found: dict[str, Any] = {}
    found |= {name: name_in(row, names[name]) for name in ("method", "setting")}
    found["score"] = number_in(row, names["score"])
    for name, default in (("mass", 1.0), ("reference", 0.0), ("best", 1.0)):
        value = number_in(row, names[name], required=False)
        found[name] = default if value is None else value
    seed = row.get(names["seed"])
    found["seed"] = "0" if seed in (None, "") else str(seed)
    found["features"] = {name: number_in(row, name) for name in sorted(map(str, row)) if name.startswith(FEATURE)}
    return found


def family_scores(rows: Iterable[tuple[int, Mapping[str, Any]]]) -> FamilyScores:
    """Assembles scores.

    Raises:
        MetricDataError: rows with different features, or as `FamilyScores`.
    """
    listed = list(rows)
    for number, row in listed:
        if row["features"].keys() != listed[0][1]["features"].keys():
            raise MetricDataError(f"row {number}: the {FEATURE}... columns are not those of the first row")
    found = [row for _, row in listed]
    values = {name: [row[name] for row in found] for name in COLUMNS}
    return FamilyScores(**values, features=[list(row["features"].values()) for row in found])


FAMILY_ROWS = RowFormat("scores over a family of settings", COLUMNS, family_row, family_scores)
