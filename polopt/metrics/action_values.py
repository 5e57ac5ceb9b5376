"""Action values under the target policy: models for off-policy estimators."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polopt.metrics.logged import LoggedDataError, LoggedDecisions, Numbers
from polopt.metrics.value_table import ValueTable, solved
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
    that are added to those of each (s, a). endless: the log cuts episodes that would go on, as for a discounted value
    without a horizon: an episode's last decision has no successor, and is left out of the means.

    Raises:
        LoggedDataError: the target policy has two probabilities for one state and action, or, with gamma = 1, it never
            terminates under the logged transitions.

    Source: Le, Voloshin and Yue 2019, "Batch Policy Learning under Constraints", arXiv 1903.08738, for fitted Q
    evaluation; with a table its fixed point is that of least-squares temporal differences.
    """

    by_step: bool = False
    ridge: float = 0.0
    endless: bool = False

    def setup(self) -> None:
        if self.ridge < 0:
            raise ValueError(f"TabularValues: ridge must be >= 0, found {self.ridge}")

    def forward(self, train: LoggedDecisions, test: LoggedDecisions, gamma: float) -> ActionValues:
        kinds, table = self.table(train, gamma)
        q = self._fitted(table)
        v, seen = (table.policy @ x for x in (q, np.ones(len(q))))
        return self._looked_up(test, kinds, table.pairs, q, v, seen)

    def table(self, train: LoggedDecisions, gamma: float) -> tuple[NDArray[np.int64], ValueTable]:
        """Returns the keys of the table's states, [S], and the table of the train episodes."""
        kinds, state = np.unique(self._states(train)[train.mask], return_inverse=True)
        assert train.action is not None
        keys = np.stack([state, train.action[train.mask]], 1)
        pairs, first, pair = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        probability = self._probability(train, pair.ravel(), first)
        return kinds, ValueTable(train, state, pair.ravel(), pairs, probability, gamma, self.endless)

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

    def _fitted(self, table: ValueTable) -> Numbers:
        """Returns the value of each pair, [P]."""
        return solved(table.system(self.ridge), table.rewards, table.gamma)

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
