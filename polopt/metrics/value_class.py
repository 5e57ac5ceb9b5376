"""Linear classes of action values: what off-policy evaluation within them depends on.

Source: When is Realizability Sufficient for Off-Policy Reinforcement Learning?, arXiv:2211.05311.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polopt.metrics.row_format import MetricDataError, RowFormat, column_names, number_in

Numbers = NDArray[np.float64]
COLUMNS = ("features", "next_features", "weight", "target_weight", "pair", "episode")


class Incompleteness(NamedTuple):
    """Properties of a linear class Q = phi theta, of a policy, and of a distribution mu of states and actions.

    beta: the largest share of a Bellman error's norm that is outside the class, in [0, 1]. fqe_radius: spectral radius
    of fitted Q evaluation's update, which converges if and only if it is below 1. inherent: the largest distance of
    gamma E[Q(s', a')] from the class, of Q in the class with norm 1.
    """

    beta: float
    fqe_radius: float
    inherent: float


def bellman_incompleteness(
    phi: ArrayLike, phi_next: ArrayLike, weights: ArrayLike, gamma: float, *, ridge: float = 1e-6
) -> Incompleteness:
    """Measures a linear class, with D = diag(mu), Pi the projection onto it under mu, and P^pi the transitions:

        E = Phi - gamma P^pi Phi,   N = gamma (I - Pi) P^pi Phi
        beta^2 = max_theta |N theta|^2_mu / |E theta|^2_mu
        fqe_radius = spectral radius of gamma (Phi' D Phi)^-1 Phi' D P^pi Phi
        inherent^2 = max_theta |N theta|^2_mu / |Phi theta|^2_mu

    If the class contains Q^pi, all Q of it have |Q - T Q| <= |Pi (Q - T Q)| / sqrt(1 - beta^2).

    phi: [n, d] of states and actions. phi_next: [n, d] the expectation of phi at the next state, under the target
    policy, 0 at an end; of single samples their noise counts as incompleteness. weights: [n] mu, up to a factor.
    ridge: relative to the mean square of the features, so that dependent features have a solution.

    Raises:
        MetricDataError: other shapes, numbers that are not finite, weights that are negative or all 0, features that
            are all 0, gamma outside [0, 1] or a ridge that is not positive.
    """
    x, y, mu = (np.asarray(z, float) for z in (phi, phi_next, weights))
    if x.ndim != 2 or not x.size or x.shape != y.shape or mu.shape != (len(x),):
        raise MetricDataError(
            f"bellman_incompleteness: phi and phi_next must be [n, d] and weights [n], found {list(x.shape)}, "
            f"{list(y.shape)} and {list(mu.shape)}"
        )
    if not all(np.isfinite(z).all() for z in (x, y, mu)) or (mu < 0).any() or not mu.sum() > 0:
        raise MetricDataError("bellman_incompleteness: all must be finite numbers, and weights >= 0 with a sum > 0")
    if not 0 <= gamma <= 1 or not ridge > 0:
        raise MetricDataError(f"bellman_incompleteness: need gamma in [0, 1] and ridge > 0, found {gamma} and {ridge}")
    root = np.sqrt(mu / mu.sum())[:, None]
    x, y = root * x, gamma * root * y
    size = float((x**2).sum()) / x.shape[1]
    if not size > 0:
        raise MetricDataError("bellman_incompleteness: the features are all 0 where weights are not")
    small = ridge * size * np.eye(x.shape[1])
    sigma = x.T @ x + small
    update = np.linalg.solve(sigma, x.T @ y)
    outside, error = y - x @ update, x - y
    return Incompleteness(
        beta=min(1.0, _largest_ratio(outside.T @ outside, error.T @ error + small)),
        fqe_radius=float(np.abs(np.linalg.eigvals(update)).max()),
        inherent=_largest_ratio(outside.T @ outside, sigma),
    )


def concentrability(phi: ArrayLike, weights: ArrayLike, target_weights: ArrayLike, *, ridge: float = 1e-6) -> float:
    """Returns max_theta |phi theta|^2_d / |phi theta|^2_mu of a linear class, phi [n, d]; d is the target policy's
    distribution, mu that of the data, [n] each up to a factor. At most the largest quotient d / mu."""
    x, mu, d = (np.asarray(z, float) for z in (phi, weights, target_weights))
    mu, d = mu / mu.sum(), d / d.sum()
    sigma = x.T @ (mu[:, None] * x)
    small = ridge * np.trace(sigma) / len(sigma) * np.eye(len(sigma))
    return _largest_ratio(x.T @ (d[:, None] * x), sigma + small) ** 2


def _largest_ratio(above: Numbers, below: Numbers) -> float:
    """Returns max_v sqrt(v' above v / v' below v) of symmetric matrices, `below` positive definite."""
    from scipy.linalg import eigh  # slow to import

    return float(np.sqrt(max(0.0, eigh(above, below, eigvals_only=True)[-1])))


@dataclasses.dataclass(frozen=True, eq=False)
class FeatureTransitions:
    """N transitions with features; arrays or lists, [N] each unless another shape stands there.

    features: [N, D] of the state and action. next_features: [N, D] at the next state, under the target policy; 0 at an
    end. weight: of the transition, 1 by default. target_weight: of its state and action under the target policy. pair:
    name of the state and action; transitions of one pair are averaged. episode: name; transitions of one are dependent.

    Raises:
        MetricDataError: other shapes, numbers that are not finite, or weights that are negative or all 0.
    """

    features: Any
    next_features: Any
    weight: Any = None
    target_weight: Any = None
    pair: Any = None
    episode: Any = None

    def __post_init__(self) -> None:
        numbers = ("features", "next_features", "weight", "target_weight")
        n = len(np.asarray(self.features))
        if self.weight is None:
            object.__setattr__(self, "weight", np.ones(n))
        for name in COLUMNS:
            value = getattr(self, name)
            if value is not None:
                kind = np.asarray(value, float) if name in numbers else np.array([str(x) for x in value])
                object.__setattr__(self, name, kind)
        shapes = {name: getattr(self, name).shape for name in COLUMNS if getattr(self, name) is not None}
        wide = shapes["features"]
        good = {name: wide if name in numbers[:2] else (n,) for name in shapes}
        if not n or len(wide) != 2 or shapes != good:
            found = {name: list(shape) for name, shape in shapes.items()}
            raise MetricDataError(f"FeatureTransitions: features must be [N, D], N >= 1, others [N], found {found}")
        for name in numbers:
            x = getattr(self, name)
            if x is not None and not np.isfinite(x).all():
                raise MetricDataError(f"FeatureTransitions: {name} must be finite, found {x[~np.isfinite(x)][0]}")
        for name in numbers[2:]:
            x = getattr(self, name)
            if x is not None and ((x < 0).any() or not x.sum() > 0):
                raise MetricDataError(f"FeatureTransitions: {name} must be >= 0, and not all 0, found {x.min():g}")

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, rows: Sequence[int] | NDArray[Any]) -> FeatureTransitions:
        found = {name: getattr(self, name) for name in COLUMNS}
        return FeatureTransitions(**{name: None if x is None else x[rows] for name, x in found.items()})

    def averaged(self) -> FeatureTransitions:
        """Returns one transition for each pair: the weighted means of features, and the sums of weights."""
        if self.pair is None:
            return self
        names, code = np.unique(self.pair, return_inverse=True)
        mass = np.bincount(code, self.weight)
        keep = mass > 0
        means = []
        for x in (self.features, self.next_features):
            total = np.zeros((len(names), x.shape[1]))
            np.add.at(total, code, self.weight[:, None] * x)
            means.append(total[keep] / mass[keep, None])
        target = None if self.target_weight is None else np.bincount(code, self.target_weight)[keep]
        return FeatureTransitions(means[0], means[1], mass[keep], target, names[keep])


def transition_row(row: Mapping[str, Any], columns: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Checks one transition of a file.

    Raises:
        MetricDataError: features that are missing or no lists of numbers of one length, or a weight that is no number.
    """
    names = column_names(COLUMNS, columns)
    found: dict[str, Any] = {name: _vector(row, names[name]) for name in ("features", "next_features")}
    if len(found["features"]) != len(found["next_features"]):
        raise MetricDataError(
            f"{names['features']} and {names['next_features']} must have one length, found {len(found['features'])} "
            f"and {len(found['next_features'])}"
        )
    for name in ("weight", "target_weight"):
        found[name] = number_in(row, names[name], required=False)
    for name in ("pair", "episode"):
        value = row.get(names[name])
        found[name] = None if value is None or value == "" else str(value)
    return found


def _vector(row: Mapping[str, Any], name: str) -> list[float]:
    value = row.get(name)
    if value is None or value == "":
        raise MetricDataError(f"column {name!r} is missing: a list of numbers")
    try:
        numbers = [float(x) for x in (json.loads(value) if isinstance(value, str) else value)]
    except (TypeError, ValueError):
        raise MetricDataError(f"{name} must be a list of numbers, found {value!r:.60}") from None
    if not numbers or not np.isfinite(numbers).all():
        raise MetricDataError(f"{name} must be a list of finite numbers, found {value!r:.60}")
    return numbers


def feature_transitions(rows: Iterable[tuple[int, Mapping[str, Any]]]) -> FeatureTransitions:
    """Assembles transitions.

    Raises:
        MetricDataError: a column that only some rows have, features of unlike length, or as `FeatureTransitions`.
    """
    numbered = list(rows)
    for name in COLUMNS[2:]:
        without = [number for number, row in numbered if row[name] is None]
        if without and len(without) < len(numbered):
            raise MetricDataError(f"row {without[0]}: {name} is empty; give it in every row or in none")
    for number, row in numbered:
        if len(row["features"]) != len(numbered[0][1]["features"]):
            raise MetricDataError(f"row {number}: features have another length than those of row {numbered[0][0]}")
    found = [row for _, row in numbered]
    given = [name for name in COLUMNS if found and found[0][name] is not None]
    if not given:
        raise MetricDataError("the file has no rows; give one transition a row")
    return FeatureTransitions(**{name: [row[name] for row in found] for name in given})


FEATURE_ROWS = RowFormat("transitions with features", COLUMNS, transition_row, feature_transitions)
