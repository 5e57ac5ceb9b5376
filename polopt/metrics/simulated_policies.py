"""Policies evaluated in a learned simulator: the simulator, the evaluation, and how far its values agree with the true
ones.

Source: Scalable Policy Evaluation with Video World Models, arXiv:2511.11520.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polopt.metrics.row_format import MetricDataError, RowFormat, column_names, name_in, number_in

Numbers = NDArray[np.float64]
# States [N, D] and actions [N, A] -> next states [N, D]; states -> actions; states of a rollout [T + 1, N, D] -> [N].
Dynamics = Callable[[Numbers, Numbers], Numbers]
StatePolicy = Callable[[Numbers], Numbers]
RolloutScore = Callable[[Numbers], Numbers]
COLUMNS = ("model", "policy", "predicted", "true", "trials")


def rank_violation(predicted: ArrayLike, true: ArrayLike) -> float:
    """Returns the mean maximum rank violation of predictions V [n] of true values R [n]:

        1/n sum_i max_j |R_i - R_j| [(V_i < V_j) != (R_i < R_j)]

    0 if all pairs are in their true order; else in the unit of R. Source: SIMPLER, arXiv:2405.05941.
    """
    return float(rank_violations(np.asarray(predicted, float), np.asarray(true, float)))


def rank_violations(predicted: Numbers, true: Numbers) -> Numbers:
    """Returns `rank_violation` of each row of [..., n]."""
    v, r = predicted[..., None], true[..., None]
    wrong = (v < v.swapaxes(-1, -2)) != (r < r.swapaxes(-1, -2))
    found: Numbers = (np.abs(r - r.swapaxes(-1, -2)) * wrong).max(-1).mean(-1)
    return found


def simulated_value(model: Dynamics, policy: StatePolicy, start: Numbers, horizon: int, score: RolloutScore) -> Numbers:
    """Returns the scores [N] of one rollout of a policy in a simulator from each first state, start [N, D].

    model: any simulator, learned or true. score: of the states [horizon + 1, N, D], such as success.
    """
    states = [np.asarray(start, float)]
    for _ in range(horizon):
        states.append(np.asarray(model(states[-1], policy(states[-1])), float))
    return np.asarray(score(np.stack(states)), float)


@dataclasses.dataclass(frozen=True, eq=False)
class RandomFeatureDynamics:
    """A dynamics model s' = s + W f(z), fitted by ridge regression to logged transitions; z is the standardised state
    and action, f(z) = (1, z, cos(O z + b)) with random O and b.

    States stay within `reach` of the data's range, in multiples of its width, so that rollouts stay finite.
    """

    shift: Numbers
    scale: Numbers
    omega: Numbers
    phase: Numbers
    weights: Numbers
    low: Numbers
    high: Numbers

    @classmethod
    def fit(
        cls,
        state: Numbers,
        action: Numbers,
        next_state: Numbers,
        *,
        features: int = 150,
        ridge: float = 1e-4,
        reach: float = 3.0,
        seed: int = 0,
    ) -> RandomFeatureDynamics:
        """Fits the model to N transitions, [N, D], [N, A] and [N, D]. ridge: relative to N.

        Raises:
            MetricDataError: other shapes, numbers that are not finite, or no transitions.
        """
        s, a, s_next = (np.asarray(x, float) for x in (state, action, next_state))
        if s.ndim != 2 or a.ndim != 2 or s.shape != s_next.shape or len(a) != len(s) or not len(s):
            raise MetricDataError(
                "RandomFeatureDynamics: state and next_state must be [N, D] and action [N, A], N >= 1, found "
                f"{list(s.shape)}, {list(s_next.shape)} and {list(a.shape)}"
            )
        if not all(np.isfinite(x).all() for x in (s, a, s_next)):
            raise MetricDataError("RandomFeatureDynamics: transitions must be finite numbers")
        draw, z = np.random.default_rng(seed), np.concatenate([s, a], 1)
        scale = np.where(z.std(0) > 0, z.std(0), 1.0)
        omega, phase = draw.normal(size=(z.shape[1], features)), draw.uniform(0, 2 * np.pi, features)
        width = np.ptp(s_next, axis=0)
        middle = (s_next.max(0) + s_next.min(0)) / 2
        empty = cls(z.mean(0), scale, omega, phase, np.zeros(0), middle - reach * width, middle + reach * width)
        f = empty.features(z)
        gram = f.T @ f + ridge * len(s) * np.eye(f.shape[1])
        return dataclasses.replace(empty, weights=np.linalg.solve(gram, f.T @ (s_next - s)))

    def features(self, z: Numbers) -> Numbers:
        """Returns f(z), [N, F]."""
        x = (z - self.shift) / self.scale
        found: Numbers = np.concatenate([np.ones((len(x), 1)), x, np.cos(x @ self.omega + self.phase)], 1)
        return found

    def __call__(self, state: Numbers, action: Numbers) -> Numbers:
        found: Numbers = state + self.features(np.concatenate([state, action], 1)) @ self.weights
        return np.clip(found, self.low, self.high)


@dataclasses.dataclass(frozen=True, eq=False)
class SimulatedPolicies:
    """N policies' values as a simulator predicts them, and the true ones; arrays or lists, [N] each.

    model: name of the simulator, "model" by default. policy: name. predicted, true: values. trials: where the true
    values are success rates, the number of trials of each.

    Raises:
        MetricDataError: arrays of different lengths or without rows, numbers that are not finite, a policy that one
            model has twice, trials below 1, or with trials true values outside [0, 1].
    """

    policy: Any
    predicted: Any
    true: Any
    trials: Any = None
    model: Any = None

    def __post_init__(self) -> None:
        policy = np.array([str(x) for x in np.atleast_1d(np.asarray(self.policy))])
        model = np.array(["model"] * len(policy) if self.model is None else [str(x) for x in self.model])
        found: dict[str, Any] = {"policy": policy, "model": model}
        for name in ("predicted", "true", "trials"):
            if getattr(self, name) is not None:
                found[name] = np.asarray(getattr(self, name), float)
        if not len(policy) or any(x.shape != policy.shape for x in found.values()):
            shapes = {name: list(x.shape) for name, x in found.items()}
            raise MetricDataError(f"SimulatedPolicies: all must be [N] with N >= 1, found {shapes}")
        for name, x in found.items():
            if x.dtype == float and not np.isfinite(x).all():
                raise MetricDataError(f"SimulatedPolicies: {name} must be finite, found {x[~np.isfinite(x)][0]}")
            object.__setattr__(self, name, x)
        if len(set(zip(model.tolist(), policy.tolist(), strict=True))) < len(policy):
            raise MetricDataError("SimulatedPolicies: a model has two predictions of one policy; give each one row")
        if self.trials is not None and (self.trials < 1).any():
            raise MetricDataError(f"SimulatedPolicies: trials must be >= 1, found {self.trials.min():g}")
        if self.trials is not None and ((self.true < 0) | (self.true > 1)).any():
            raise MetricDataError("SimulatedPolicies: with trials true values are success rates, in [0, 1]")

    def __len__(self) -> int:
        return len(self.policy)

    def __getitem__(self, rows: Sequence[int] | NDArray[Any]) -> SimulatedPolicies:
        found = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return SimulatedPolicies(**{name: None if x is None else x[rows] for name, x in found.items()})

    def by_model(self) -> dict[str, SimulatedPolicies]:
        """Returns the rows of each model, by the policy's name."""
        order = np.lexsort([self.policy, self.model])
        return {name: self[order[self.model[order] == name]] for name in np.unique(self.model).tolist()}


def simulated_row(row: Mapping[str, Any], columns: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Checks one policy of a file.

    Raises:
        MetricDataError: a column that is missing, or no finite number.
    """
    names = column_names(COLUMNS, columns)
    policy, model = name_in(row, names["policy"]), row.get(names["model"])
    found: dict[str, Any] = {name: number_in(row, names[name]) for name in ("predicted", "true")}
    found["trials"] = number_in(row, names["trials"], required=False)
    return found | {"policy": str(policy).strip(), "model": "model" if model in (None, "") else str(model)}


def simulated_policies(rows: Iterable[tuple[int, Mapping[str, Any]]]) -> SimulatedPolicies:
    """Assembles policies.

    Raises:
        MetricDataError: trials that only some rows have, or as `SimulatedPolicies`.
    """
    numbered = list(rows)
    without = [number for number, row in numbered if row["trials"] is None]
    if without and len(without) < len(numbered):
        raise MetricDataError(f"row {without[0]}: trials is empty; give it in every row or in none")
    found = [row for _, row in numbered]
    arrays = {name: [row[name] for row in found] for name in COLUMNS if name != "trials" or not without}
    return SimulatedPolicies(**arrays)


SIMULATED_ROWS = RowFormat("predicted and true values of policies", COLUMNS, simulated_row, simulated_policies)
