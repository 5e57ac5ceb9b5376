"""Action values under the target policy: models for off-policy estimators."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polopt.metrics.logged import LoggedDataError, LoggedDecisions, Numbers
from polopt.part import Part


class ActionValues(NamedTuple):
    """Estimated action and state values of the logged decisions of B episodes.

    q: [B, T] of the action that was taken. v: [B, T] of the state, sum_a pi(a | s) q(s, a). unseen: [B, T] the
    probability of the target policy's actions without a decision in the model's data, which count as 0; None if the
    model covers all actions. A doubly robust estimate needs v to be exactly the mean of q.
    """

    q: Numbers
    v: Numbers
    unseen: Numbers | None = None


class ActionValueModel(Part):
    """`model(train, test, gamma)` returns the `ActionValues` of the test episodes, fitted to the train episodes.

    columns: the columns of a table that the model reads. fitted: whether the model depends on the train episodes.
    """

    fitted: ClassVar[bool] = True

    @property
    def columns(self) -> frozenset[str]:
        return frozenset({"state", "action"})

    def forward(self, train: LoggedDecisions, test: LoggedDecisions, gamma: float) -> ActionValues:
        raise NotImplementedError


class LoggedValues(ActionValueModel):
    """Returns the values of the table's columns `q` and `v`; nothing is fitted."""

    fitted = False

    @property
    def columns(self) -> frozenset[str]:
        return frozenset({"q", "v"})

    def forward(self, train: LoggedDecisions, test: LoggedDecisions, gamma: float) -> ActionValues:
        assert test.q is not None
        assert test.v is not None
        return ActionValues(test.q, test.v)


class TabularValues(ActionValueModel):
    """Fitted Q evaluation with a table, solved at once: the least-squares solution of

        q(s, a) = mean over the logged decisions (s, a) of  r + gamma v(s'),    v(s) = sum_a pi(a | s) q(s, a),

    with v = 0 after an episode's end. pi(a | s) is taken from the logged target probabilities of the train episodes;
    actions that do not occur there have q = 0.

    by_step: one table for each step, as a finite horizon needs. ridge: the number of pseudo-decisions of value 0
    that are added to those of each (s, a).

    Raises:
        LoggedDataError: the target policy has two probabilities for one state and action, or, with gamma = 1, it never
            terminates under the logged transitions.

    Source: Le, Voloshin and Yue 2019, "Batch Policy Learning under Constraints", arXiv 1903.08738, for fitted Q
    evaluation; with a table its fixed point is that of least-squares temporal differences.
    """

    by_step: bool = False
    ridge: float = 0.0

    def setup(self) -> None:
        if self.ridge < 0:
            raise ValueError(f"TabularValues: ridge must be >= 0, found {self.ridge}")

    def forward(self, train: LoggedDecisions, test: LoggedDecisions, gamma: float) -> ActionValues:
        states = self._states(train)
        kinds, state = np.unique(states[train.mask], return_inverse=True)
        assert train.action is not None
        keys = np.stack([state, train.action[train.mask]], 1)
        pairs, first, pair = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        probability = self._probability(train, pair.ravel(), first)
        q = self._solved(train, state, pair.ravel(), pairs[:, 0], probability, gamma)
        v, seen = (np.bincount(pairs[:, 0], x, len(kinds)).astype(np.float64) for x in (probability * q, probability))
        return self._looked_up(test, kinds, pairs, q, v, seen)

    def _states(self, table: LoggedDecisions) -> NDArray[np.int64]:
        """Returns the keys [B, T] of the rows of the table of values."""
        assert table.state is not None
        steps = np.arange(table.state.shape[1])
        return table.state * 2**31 + steps if self.by_step else table.state

    def _probability(
        self, train: LoggedDecisions, pair: NDArray[np.int64], first: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Returns pi(a | s) of each pair, [P]."""
        logged = np.exp(train.target_logp[train.mask])
        known = logged[first]
        if (off := np.abs(logged - known[pair])).max() > 1e-4:
            b, t = (int(i[off.argmax()]) for i in train.mask.nonzero())
            raise LoggedDataError(
                f"TabularValues: the target policy takes the action of decision {t} of episode {b} with probability "
                f"{logged[off.argmax()]:.4g} there and {known[pair[off.argmax()]]:.4g} elsewhere in the same state; "
                "log a state that holds all that the policy reads, or take another model"
            )
        return known

    def _solved(
        self,
        train: LoggedDecisions,
        state: NDArray[np.int64],
        pair: NDArray[np.int64],
        state_of: NDArray[np.int64],
        probability: Numbers,
        gamma: float,
    ) -> Numbers:
        """Solves for the value of each pair, [P]. state, pair: [N] of each decision; state_of, probability: [P]."""
        from scipy.sparse import csc_matrix, diags
        from scipy.sparse.linalg import splu

        P, S = len(probability), int(state.max()) + 1
        goes_on = (np.arange(train.mask.shape[1]) < train.lengths[:, None] - 1)[train.mask]
        next_state = state[np.flatnonzero(goes_on) + 1]  # decisions are in the order of their episodes
        moves = csc_matrix((np.ones(len(next_state)), (pair[goes_on], next_state)), (P, S))
        policy = csc_matrix((probability, (state_of, np.arange(P))), (S, P))
        count = np.bincount(pair, minlength=P).astype(float)
        rewards = np.bincount(pair, train.reward[train.mask], P)
        system = (diags(count + self.ridge) - gamma * (moves @ policy)).tocsc()
        try:
            q = splu(system).solve(rewards)
        except RuntimeError:  # exactly singular
            q = np.full(P, np.nan)
        if not np.isfinite(q).all() or np.abs(system @ q - rewards).max() > 1e-6 * max(1.0, np.abs(rewards).max()):
            raise LoggedDataError(
                f"TabularValues: with gamma = {gamma:g} the target policy never comes to an end where it follows the "
                "logged transitions; give by_step=True, a gamma below 1 or a ridge above 0"
            )
        return q

    def _looked_up(
        self,
        test: LoggedDecisions,
        kinds: NDArray[np.int64],
        pairs: NDArray[np.int64],
        q: Numbers,
        v: Numbers,
        seen: Numbers,
    ) -> ActionValues:
        """Returns the values of the test episodes' decisions, 0 where the table has no entry."""
        states = self._states(test)
        row = np.searchsorted(kinds, states).clip(max=len(kinds) - 1)
        known = (kinds[row] == states) & test.mask
        codes = {(int(s), int(a)): i for i, (s, a) in enumerate(pairs)}
        assert test.action is not None
        found = [codes.get(key, -1) for key in zip(row.ravel().tolist(), test.action.ravel().tolist(), strict=True)]
        place = np.where(known, np.reshape(found, row.shape), -1)
        unseen = np.where(known, 1 - seen[row], 1.0)
        return ActionValues(
            q=np.where(place >= 0, q[place], 0.0),
            v=np.where(known, v[row], 0.0),
            unseen=np.where(test.mask, unseen.clip(0, 1), 0.0),
        )
