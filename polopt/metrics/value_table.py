"""The equations of fitted Q evaluation for a table of states and actions."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from polopt.metrics.logged import LoggedDataError, LoggedDecisions, Numbers

if TYPE_CHECKING:
    from scipy.sparse import csc_matrix


@dataclasses.dataclass(frozen=True, eq=False)
class ValueTable:
    """The logged decisions of a table of S states and P pairs of a state and an action, in the order of their episodes.

    train: the episodes. state, pair: [N] of each decision. pairs: [P, 2] the state and the action of each pair.
    probability: [P] pi(a | s). gamma: discount. endless: leave
    out the last decision of each episode, whose successor is not logged.
    """

    train: LoggedDecisions
    state: NDArray[np.int64]
    pair: NDArray[np.int64]
    pairs: NDArray[np.int64]
    probability: Numbers
    gamma: float
    endless: bool = False

    @functools.cached_property
    def policy(self) -> csc_matrix:
        """pi(a | s), [S, P]."""
        from scipy.sparse import csc_matrix

        P = len(self.probability)
        return csc_matrix((self.probability, (self.pairs[:, 0], np.arange(P))), (int(self.state.max()) + 1, P))

    @functools.cached_property
    def rewards(self) -> Numbers:
        """The sum of each pair's rewards, [P]."""
        reward = np.where(self.used, self.train.reward[self.train.mask], 0.0)
        return np.bincount(self.pair, reward, len(self.probability)).astype(np.float64)

    @functools.cached_property
    def goes_on(self) -> NDArray[np.bool_]:
        """Mask of the decisions that are not their episode's last, [N]."""
        steps = np.arange(self.train.mask.shape[1])
        found: NDArray[np.bool_] = (steps < self.train.lengths[:, None] - 1)[self.train.mask]
        return found

    @property
    def used(self) -> NDArray[np.bool_]:
        """Mask of the decisions that the equations are made of, [N]."""
        return self.goes_on if self.endless else np.ones(len(self.pair), bool)

    @functools.cached_property
    def step(self) -> NDArray[np.int64]:
        """The step at which each pair was first logged, [P]: of every decision of it, where tables are by step."""
        steps = np.arange(self.train.mask.shape[1])[None].repeat(len(self.train), 0)[self.train.mask]
        found: NDArray[np.int64] = np.full(len(self.probability), len(steps), np.int64)
        np.minimum.at(found, self.pair, steps)
        return found

    @functools.cached_property
    def starts(self) -> Numbers:
        """The number of episodes that begin in each state, [S]."""
        first = np.append(0, np.cumsum(self.train.lengths)[:-1])
        return np.bincount(self.state[first], minlength=int(self.state.max()) + 1).astype(np.float64)

    def system(self, ridge: float = 0.0) -> csc_matrix:
        """Returns A [P, P] of A q = rewards, fitted Q evaluation: counts + ridge - gamma moves policy."""
        from scipy.sparse import csc_matrix, diags

        next_state = self.state[np.flatnonzero(self.goes_on) + 1]
        shape = len(self.probability), int(self.state.max()) + 1
        moves = csc_matrix((np.ones(len(next_state)), (self.pair[self.goes_on], next_state)), shape)
        count = np.bincount(self.pair[self.used], minlength=shape[0]).astype(float)
        # A pair without a used decision has the value 0.
        return (diags(np.where(count > 0, count, 1.0) + ridge) - self.gamma * (moves @ self.policy)).tocsc()


def solved(system: csc_matrix, right: Numbers, gamma: float) -> Numbers:
    """Solves the equations of a table.

    Raises:
        LoggedDataError: they have no solution.
    """
    from scipy.sparse.linalg import splu

    try:
        found: Numbers = splu(system).solve(right)
    except RuntimeError:  # exactly singular
        found = np.full(len(right), np.nan)
    if not np.isfinite(found).all() or np.abs(system @ found - right).max() > 1e-6 * max(1.0, np.abs(right).max()):
        raise LoggedDataError(
            f"TabularValues: with gamma = {gamma:g} the target policy never comes to an end where it follows the "
            "logged transitions; give by_step=True, a gamma below 1 or a ridge above 0"
        )
    return found
