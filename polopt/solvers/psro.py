"""Policy-space response oracles: populations of strategies, the game between them, and exact best responses."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from polopt.part import Part
from polopt.problems import ExtensiveGame, GameError
from polopt.solvers.solver import Solver, State


class MetaSolver(Part):
    """`meta(payoffs [P, K, ..., K], k) -> [P, K]`: each player's distribution over its K strategies, from the payoffs
    of all profiles, in iteration k = 0, 1, ...; here uniform."""

    def check(self, game: ExtensiveGame) -> None:
        """Raises GameError if there is no such distribution in the game."""

    def forward(self, payoffs: np.ndarray, k: int) -> np.ndarray:
        return np.full(payoffs.shape[:2], 1 / payoffs.shape[1])


def strategy_payoffs(payoffs: np.ndarray, mixes: np.ndarray, player: int) -> np.ndarray:
    """Computes the payoffs [K] of a player's strategies against the others' distributions, rows of [P, K]."""
    found = payoffs[player]
    for other in reversed([p for p in range(len(mixes)) if p != player]):
        found = np.tensordot(found, mixes[other], (other, 0)) if found.ndim > 2 else _last(found, mixes[other], other)
    return found


def _last(table: np.ndarray, mix: np.ndarray, axis: int) -> np.ndarray:
    return table @ mix if axis else mix @ table


class ProjectedReplicator(MetaSolver):
    """Projected replicator dynamics from uniform distributions, all players at once, with f the payoffs of a player's
    strategies against the others' distributions:

        x <- projection of x + dt x (f - x . f) on the distributions with all x >= gamma

    The result is the mean of all distributions, the first included.

    steps: how many. dt: their size, in inverse units of payoffs. gamma: the least probability of a strategy, at most
    1 / K.

    Source: Lanctot and others (2017), arXiv 1711.00832.
    """

    steps: int = 2000
    dt: float = 1e-2
    gamma: float = 1e-6

    def setup(self) -> None:
        if self.steps < 1 or self.dt <= 0 or self.gamma < 0:
            raise ValueError(
                "solvers.ProjectedReplicator: need steps >= 1, dt > 0 and gamma >= 0, found "
                f"{self.steps}, {self.dt} and {self.gamma}"
            )

    def forward(self, payoffs: np.ndarray, k: int) -> np.ndarray:
        players, count = payoffs.shape[:2]
        mixes = np.full((players, count), 1 / count)
        total, least = mixes.copy(), min(self.gamma, 1 / count)
        for _ in range(self.steps):
            found = np.stack([strategy_payoffs(payoffs, mixes, p) for p in range(players)])
            change = mixes * (found - (mixes * found).sum(1, keepdims=True))
            mixes = _project(mixes + self.dt * change, least)
            total += mixes
        return total / total.sum(1, keepdims=True)


def _project(rows: np.ndarray, least: float) -> np.ndarray:
    """Computes the nearest distributions to the rows of [P, K] whose probabilities are at least `least`."""
    if rows.min() >= least:  # their sums are 1 already, as replicator steps keep them
        return rows + (1 - rows.sum(1, keepdims=True)) / rows.shape[1]
    count = np.arange(1, rows.shape[1] + 1)
    mass, shifted = 1 - rows.shape[1] * least, rows - least
    ordered = -np.sort(-shifted, 1)
    shift = (ordered.cumsum(1) - mass) / count
    kept = (ordered > shift).sum(1)
    return least + np.maximum(shifted - shift[np.arange(len(rows)), kept - 1][:, None], 0)


class NashLP(MetaSolver):
    """A Nash equilibrium of two players whose payoffs add up to 0, by linear programming: each player's distribution
    with the largest payoff against the other's best reply. With it, policy-space response oracles are the double oracle
    algorithm.

    Source: McMahan, Gordon and Blum (2003), "Planning in the Presence of Cost Functions Controlled by an Adversary".
    """

    def check(self, game: ExtensiveGame) -> None:
        if game.players != 2 or float(game.payoff.sum(0).abs().max()) > 1e-9:
            raise GameError(
                f"solvers.NashLP needs two players whose payoffs add up to 0, found {game!r}; take another meta-solver"
            )

    def forward(self, payoffs: np.ndarray, k: int) -> np.ndarray:
        return np.stack([_maximin(payoffs[0]), _maximin(payoffs[1].T)])


def _maximin(table: np.ndarray) -> np.ndarray:
    """Solves max v subject to table.T x >= v for distributions x of the rows."""
    from scipy.optimize import linprog  # slow to import

    rows, columns = table.shape
    found = linprog(
        np.append(np.zeros(rows), -1.0),
        A_ub=np.hstack([-table.T, np.ones((columns, 1))]),
        b_ub=np.zeros(columns),
        A_eq=np.append(np.ones(rows), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0, None)] * rows + [(None, None)],
        method="highs",
    )
    x = np.maximum(found.x[:rows], 0)
    return x / x.sum()


class PSRO(Solver):
    """Policy-space response oracles on a game of perfect recall, with exact best responses. In each iteration k = 0, 1,
    ..., with U the payoffs of all profiles of strategies in the populations,

        x <- train_meta(U, k),    each population <- population and a best response to x of the others

    from populations of the uniform strategy alone. The solution of populations is what x = eval_meta(U, k) plays.

    train_meta: distributions that best responses are computed against.
    eval_meta: distributions of the solution.

    Where several actions are best, a best response takes them with equal probabilities, so that no order of actions
    matters. The state holds the strategies [K, E], of which row k is the k-th of every player, and the number of
    iterations. Comparisons of solvers whose `eval_meta` differs compare that too; NashLP is the same for all.

    Source: Lanctot and others (2017), arXiv 1711.00832.
    """

    solves: ClassVar[type] = ExtensiveGame
    progress_steps: ClassVar[int] = 10

    train_meta: MetaSolver = ProjectedReplicator()
    eval_meta: MetaSolver = ProjectedReplicator()

    def start(self, problem: Any) -> dict[str, Tensor]:
        self.train_meta.check(problem)
        self.eval_meta.check(problem)
        return {"strategies": problem.uniform()[None], "iteration": torch.zeros((), dtype=torch.long)}

    def iterate(self, problem: Any, state: State) -> dict[str, Tensor]:
        played = self._played(problem, state, self.train_meta)
        strategies = torch.cat([state["strategies"], problem.best_response(played)[None]])
        return {"strategies": strategies, "iteration": state["iteration"] + 1}

    def solution(self, problem: Any, state: State) -> Tensor:
        return self._played(problem, state, self.eval_meta)

    def _played(self, problem: Any, state: State, meta: MetaSolver) -> Tensor:
        """Computes the strategy [E] of a meta-solver's distributions over the populations."""
        payoffs = problem.profile_payoffs(state["strategies"]).numpy()
        weights = torch.from_numpy(meta(payoffs, int(state["iteration"])))
        return problem.mixture(state["strategies"], weights)
