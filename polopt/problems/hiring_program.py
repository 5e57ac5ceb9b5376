"""The linear program of an optimal mechanism that hires agents."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Numbers of efforts and of signals of each agent, and of states."""

    efforts: tuple[int, ...]
    signals: tuple[int, ...]
    states: int

    @property
    def n(self) -> int:
        return len(self.efforts)

    @property
    def B(self) -> int:
        return int(np.prod(self.efforts))

    @property
    def S(self) -> int:
        return int(np.prod(self.signals))

    @cached_property
    def effort_table(self) -> np.ndarray:
        """Each agent's effort in each joint effort, [B, n]."""
        return np.array(list(itertools.product(*map(range, self.efforts))))

    @cached_property
    def signal_table(self) -> np.ndarray:
        """Each agent's signal in each joint signal, [S, n]."""
        return np.array(list(itertools.product(*map(range, self.signals))))

    def effort_swap(self, i: int) -> np.ndarray:
        """The joint effort [B, B_i] in which agent i takes another one."""
        return _swap(self.effort_table, self.efforts, i)

    def signal_swap(self, i: int) -> np.ndarray:
        """The joint signal [S, S_i] in which agent i has another one."""
        return _swap(self.signal_table, self.signals, i)


def _swap(table: np.ndarray, sizes: tuple[int, ...], i: int) -> np.ndarray:
    found = np.repeat(table[:, None], sizes[i], axis=1)
    found[:, :, i] = np.arange(sizes[i])
    return np.ravel_multi_index(tuple(np.moveaxis(found, -1, 0)), sizes)


class _Rows:
    """Inequalities sum of coefficients times variables <= bound, row by row."""

    def __init__(self) -> None:
        self.rows: list[np.ndarray] = []
        self.columns: list[np.ndarray] = []
        self.values: list[np.ndarray] = []
        self.count = 0

    def add(self, *terms: tuple[np.ndarray, np.ndarray]) -> None:
        """Adds a row <= 0. terms: numbers of variables and their coefficients."""
        for columns, values in terms:
            self.rows.append(np.full(columns.size, self.count))
            self.columns.append(columns.ravel())
            self.values.append(np.broadcast_to(values, columns.shape).ravel())
        self.count += 1

    def matrix(self, variables: int) -> csr_array:
        from scipy.sparse import csr_array

        parts = (np.concatenate(self.values), (np.concatenate(self.rows), np.concatenate(self.columns)))
        return csr_array(parts, shape=(self.count, variables))


def optimal_mechanism(
    sizes: Sizes,
    prior: np.ndarray,
    utility: np.ndarray,
    signals: np.ndarray,
    costs: Sequence[np.ndarray],
    cap: float,
    margin: float = 0.0,
    fixed: int | None = None,
) -> tuple[np.ndarray, np.ndarray] | None:
    """Solves

        max  sum_b x_b V(b) - sum_{i, b, s, th} prior(th) P(s | b, th) y_i(b, s, th)
        such that no effort and no map of reports pays agent i more than what it is told,    0 <= y_i <= cap x_b

    with V(b) the principal's utility of joint signals. x is a distribution over joint efforts, y payments times x; what
    a deviation earns is bounded by variables z_i(told, taken, signal), at least what each report earns.

    margin: what a deviation must lose, times the probability of the recommendation, and of the signal for a report. It
        is for efforts that cost more than the agent's cheapest, whose signals may be worth nothing.

    fixed: the one joint effort that is recommended, if any.

    Returns x [B] and y [n, B, S, Th], or None if there are none.
    """
    n, B, S, T = sizes.n, sizes.B, sizes.S, sizes.states
    weight = signals * prior
    worth = np.einsum("bst,at->bsa", weight, utility).max(-1).sum(-1)
    y = B + np.arange(n * B * S * T).reshape(n, B, S, T)
    first, z = B + y.size, []
    for i in range(n):
        shape = (sizes.efforts[i], sizes.efforts[i], sizes.signals[i])
        z.append(first + np.arange(int(np.prod(shape))).reshape(shape))
        first += z[-1].size
    rows = _Rows()
    for i in range(n):
        _incentives(rows, sizes, i, weight, y[i], z[i], costs[i], margin)
    for i, b in itertools.product(range(n), range(B)):
        for column in y[i, b].ravel():
            rows.add((np.array([column]), np.ones(1)), (np.array([b]), np.array([-cap])))
    from scipy.optimize import linprog  # both slow to import
    from scipy.sparse import csr_array

    objective = np.zeros(first)
    objective[:B], objective[y] = -worth, weight
    bounds = [(0, None if fixed in (None, b) else 0) for b in range(B)] + [(0, None)] * (first - B)
    total = csr_array((np.ones(B), (np.zeros(B, dtype=int), np.arange(B))), shape=(1, first))
    found = linprog(
        objective,
        A_ub=rows.matrix(first),
        b_ub=np.zeros(rows.count),
        A_eq=total,
        b_eq=[1.0],
        bounds=bounds,
        method="highs",
    )
    if found.status != 0:
        return None
    x = np.maximum(found.x[:B], 0)
    return x / x.sum(), np.maximum(found.x[y], 0)


def _incentives(
    rows: _Rows,
    sizes: Sizes,
    i: int,
    weight: np.ndarray,
    y: np.ndarray,
    z: np.ndarray,
    cost: np.ndarray,
    margin: float,
) -> None:
    """Adds the constraints that agent i obeys and reports its signals."""
    effort, signal = sizes.effort_table[:, i], sizes.signal_table[:, i]
    swapped, seen_as = sizes.effort_swap(i), sizes.signal_swap(i)
    for told, taken in itertools.product(range(len(cost)), repeat=2):
        strict = margin if cost[told] > cost.min() else 0.0
        b = np.flatnonzero(effort == told)
        for seen, report in itertools.product(range(sizes.signals[i]), repeat=2):
            r = np.flatnonzero(signal == report)
            earned = weight[swapped[b, taken]][:, seen_as[r, seen]]
            rows.add((y[b][:, r], earned), (z[told, taken, seen : seen + 1], np.array([-1.0])))
            if strict and told == taken and seen != report:
                s = np.flatnonzero(signal == seen)
                chance = weight[b][:, s].sum((1, 2))
                rows.add((y[b][:, r], earned), (y[b][:, s], -weight[b][:, s]), (b, strict * chance))
        lost = cost[told] - cost[taken] + (strict if told != taken else 0.0)
        rows.add((z[told, taken], np.ones(z.shape[-1])), (y[b], -weight[b]), (b, np.full(b.size, lost)))
