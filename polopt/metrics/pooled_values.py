"""Action values of a restricted class: one value for each action, whatever the state."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polopt.metrics.action_values import TabularValues
from polopt.metrics.logged import Numbers
from polopt.metrics.value_table import ValueTable, solved


class ValuesByAction(TabularValues):
    """Fitted Q evaluation with one value for each action: q(s, a) = theta_a, the least-squares solution of

        theta_a = mean over the logged decisions of a of  r + gamma sum_a' pi(a' | s') theta_a'.

    Few numbers to fit, and wrong where the state matters. by_step: one value for each action and step. ridge: the
    number of pseudo-decisions of value 0 that are added to those of each (s, a).

    Raises:
        LoggedDataError: as `TabularValues`.
    """

    def _fitted(self, table: ValueTable) -> Numbers:
        group = self._groups(table)
        members = np.eye(int(group.max()) + 1)[group]  # [P, K]
        system = members.T @ (table.system(self.ridge) @ members)
        from scipy.sparse import csc_matrix

        return solved(csc_matrix(system), members.T @ table.rewards, table.gamma)[group]

    def _groups(self, table: ValueTable) -> NDArray[np.int64]:
        """Returns the number of each pair's value, [P]."""
        action = table.pairs[:, 1]
        key = np.stack([table.step if self.by_step else np.zeros_like(action), action], 1)
        found: NDArray[np.int64] = np.unique(key, axis=0, return_inverse=True)[1]
        return found.ravel()


class MinimumVarianceValues(ValuesByAction):
    """One value for each action, theta_a, chosen to minimise the variance of the doubly robust estimate that it is used
    in, over the train episodes,

        theta = argmin Var_i[x_i + sum_a theta_a z_ia],
        x_i = sum_t gamma^t w_{0:t} r_t,    z_ia = sum_t gamma^t [w_{0:t-1} pi(a | s_t) - w_{0:t} 1(a_t = a)]

    with w_{0:t} the cumulative importance weights of episode i: a least-squares problem. Where the class holds the true
    values, both this and least squares on the returns find them; where it does not, this one leaves the smaller
    variance.

    Source: Farajtabar, Chow and Ghavamzadeh 2018, "More Robust Doubly Robust Off-policy Evaluation", arXiv 1802.03493.
    """

    def _fitted(self, table: ValueTable) -> Numbers:
        train, group = table.train, self._groups(table)
        n, K = len(train), int(group.max()) + 1
        episode, step = train.mask.nonzero()
        log_weight = train.log_weights()
        discount = table.gamma**step
        weight = discount * np.exp(log_weight[episode, step])
        before = discount * np.exp(np.where(step > 0, log_weight[episode, step - 1], 0.0))
        paid = np.bincount(episode, weight * train.reward[episode, step], n)
        taken, expected = np.zeros((n, K)), np.zeros((n, K))
        np.add.at(taken, (episode, group[table.pair]), weight)
        np.add.at(expected, episode, before[:, None] * (table.policy @ np.eye(K)[group])[table.state])
        slopes = expected - taken
        slopes, paid = slopes - slopes.mean(0), paid - paid.mean()
        gram = slopes.T @ slopes + max(self.ridge, 1e-9) * np.eye(K)
        found: Numbers = -np.linalg.solve(gram, slopes.T @ paid)
        return found[group]
