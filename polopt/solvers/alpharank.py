"""Alpha-rank: how often evolving populations of players hold each profile of strategies."""

from __future__ import annotations

import numpy as np

from polopt.problems import GameError
from polopt.solvers.psro import MetaSolver

MOST_PROFILES = 2000
# Of a takeover; a chain with probabilities of 0 need not have one stationary distribution.
LEAST = 1e-60


def fixation(gain: np.ndarray, alpha: float, population: int) -> np.ndarray:
    """Computes how likely one mutant, whose payoff is higher by `gain`, takes over a population of m:

        rho(u) = (1 - e^-u) / (1 - e^(-m u)),    u = alpha gain,    rho(0) = 1 / m

    For u < 0, rho(u) = e^((m - 1) u) rho(-u), which does not overflow. Values below 1e-60 are that.
    """
    u = alpha * np.abs(gain)
    with np.errstate(under="ignore"):
        # Below this the two differ by less than a rounding error of float64.
        small = u < 1e-14
        up = np.where(small, 1 / population, np.expm1(-u) / np.where(small, -1.0, np.expm1(-population * u)))
        found: np.ndarray = np.maximum(np.where(gain < 0, up * np.exp(-(population - 1) * u), up), LEAST)
    return found


def alpha_rank_transitions(payoffs: np.ndarray, alpha: float, population: int) -> np.ndarray:
    """Computes the Markov chain of alpha-rank over all N profiles, [N, N], from payoffs [P, K_1, ..., K_P], profiles in
    the order of the table's axes:

        C(s, s') = eta rho(U_i(s') - U_i(s))    where s' differs from s in the strategy of one player i
        C(s, s) = 1 - the others,    eta = 1 / sum_i (K_i - 1)
    """
    shape, count = payoffs.shape[1:], int(np.prod(payoffs.shape[1:]))
    found, at = np.zeros((count, count)), np.arange(count)
    eta = 1 / max(sum(k - 1 for k in shape), 1)
    places = np.array(np.unravel_index(at, shape))
    for player, strategies in enumerate(shape):
        own = payoffs[player].ravel()
        for step in range(1, strategies):
            moved = places.copy()
            moved[player] = (moved[player] + step) % strategies
            other = np.ravel_multi_index(tuple(moved), shape)
            found[at, other] = eta * fixation(own[other] - own, alpha, population)
    found[at, at] = 1 - found.sum(1)
    return found


def stationary(transitions: np.ndarray) -> np.ndarray:
    """Computes the stationary distribution [N] of an irreducible chain, by elimination of one state after the other.

    Nothing is subtracted, so that probabilities keep their relative accuracy however small they are.

    Source: Grassmann, Taksar and Heyman 1985, "Regenerative Analysis and Steady State Distributions".
    """
    chain, count = transitions.copy(), len(transitions)
    for n in range(count - 1, 0, -1):
        chain[:n, n] /= chain[n, :n].sum()
        chain[:n, :n] += np.outer(chain[:n, n], chain[n, :n])
    found = np.zeros(count)
    found[0] = 1.0
    for n in range(1, count):
        found[n] = found[:n] @ chain[:n, n]
        found /= found.max()
    return found / found.sum()


class AlphaRank(MetaSolver):
    """Alpha-rank as a meta-solver: each player's share of a strategy in the stationary distribution of the chain of
    `alpha_rank_transitions` over all profiles.

        x_i(k) = sum of pi(s) over profiles s with s_i = k,    pi = pi C

    alpha: how strongly payoffs select, in inverse units of payoffs. population: m, of each player, 2 or more.

    `profiles(payoffs)` returns pi itself, [K, ..., K]. The paper ranks profiles by pi; a meta-solver's distributions
    are products, so that here each player's marginal is taken, which is ours: it forgets which strategies occur
    together, and need not be an equilibrium even where the game has one alone. The paper sweeps alpha upwards until
    ranks stay; here it is set. The cost is of the third power of the number of profiles, at most 2,000.

    Source: Omidshafiei and others (2019), arXiv 1903.01373, for several populations.
    """

    alpha: float = 1.0
    population: int = 50

    def setup(self) -> None:
        if not 0 < self.alpha < np.inf or self.population < 2:
            raise ValueError(
                "solvers.AlphaRank: need finite alpha > 0 and population >= 2, found "
                f"{self.alpha} and {self.population}"
            )

    def profiles(self, payoffs: np.ndarray) -> np.ndarray:
        """Computes the stationary probability of each profile, [K_1, ..., K_P], from payoffs [P, K_1, ..., K_P].

        Raises:
            GameError: more than 2,000 profiles, or payoffs that are no such table of finite numbers.
        """
        table = np.asarray(payoffs, float)
        if table.ndim < 2 or table.ndim != len(table) + 1 or not table.size or not np.isfinite(table).all():
            raise GameError(
                "solvers.AlphaRank: payoffs must be finite numbers [P, K_1, ..., K_P] of P players, found shape "
                f"{list(table.shape)}"
            )
        if table[0].size > MOST_PROFILES:
            raise GameError(
                f"solvers.AlphaRank: payoffs are of {table[0].size} profiles, more than {MOST_PROFILES}; take fewer "
                "iterations or another meta-solver"
            )
        chain = alpha_rank_transitions(table, self.alpha, self.population)
        return stationary(chain).reshape(table.shape[1:])

    def forward(self, payoffs: np.ndarray, k: int) -> np.ndarray:
        found = self.profiles(payoffs)
        players = range(found.ndim)
        return np.stack([found.sum(tuple(p for p in players if p != player)) for player in players])
