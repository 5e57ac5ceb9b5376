"""Alpha-rank against OpenSpiel's, against a simulated contest, in exact fractions, and as a meta-solver of PSRO."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import polopt as po
from polopt.problems import GameError, kuhn_poker
from polopt.solvers import AlphaRank
from polopt.solvers.alpharank import alpha_rank_transitions, fixation, stationary


def test_distributions_are_those_of_openspiel() -> None:
    theirs = pytest.importorskip("open_spiel.python.egt.alpharank")
    for seed, shape, alpha, m in ((0, (3, 3), 0.2, 10), (1, (2, 4), 1.0, 50), (2, (2, 3, 2), 0.5, 20)):
        payoffs = np.random.default_rng(seed).normal(size=(len(shape), *shape))
        rhos, _, expected, *_ = theirs.compute(list(payoffs), m=m, alpha=alpha)
        # Their profiles count in the last player's strategies first.
        found = AlphaRank(alpha=alpha, population=m).profiles(payoffs)
        np.testing.assert_allclose(found.ravel(), expected, atol=1e-9)
        chain = alpha_rank_transitions(payoffs, alpha, m)
        off = ~np.eye(len(chain), dtype=bool)
        np.testing.assert_allclose(chain[off], rhos[off] / sum(k - 1 for k in shape), rtol=1e-9, atol=1e-60)


def test_a_takeover_is_absorption_of_a_birth_death_chain() -> None:
    """A mutant count rises over falls with odds e^u; absorption at m from 1, by a linear system."""
    for u, m in ((0.7, 5), (-0.4, 7), (0.0, 4)):
        up = 1 / (1 + np.exp(-u))
        A, b = np.eye(m - 1), np.zeros(m - 1)
        for i in range(m - 1):
            if i:
                A[i, i - 1] = -(1 - up)
            if i < m - 2:
                A[i, i + 1] = -up
        b[-1] = up
        assert fixation(np.array(u / 2), 2.0, m) == pytest.approx(np.linalg.solve(A, b)[0], rel=1e-12)


def test_a_stationary_distribution_in_exact_fractions() -> None:
    a, b = Fraction(1, 10**25), Fraction(1, 3)
    chain = np.array([[1 - a - a, a, a], [b, 1 - b - a, a], [b, b, 1 - b - b]], float)
    # pi of three states is in proportion to sums over spanning trees.
    trees = [b * b + a * b + b * b, a * b + a * b + a * b, a * a + b * a + a * a]
    truth = np.array([float(t / sum(trees)) for t in trees])
    np.testing.assert_allclose(stationary(chain), truth, rtol=1e-12)


def test_rock_paper_scissors_is_uniform_and_a_dominant_strategy_holds() -> None:
    table = np.array([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]])
    np.testing.assert_allclose(AlphaRank()(np.stack([table, -table]), 0), np.full((2, 3), 1 / 3), atol=1e-12)
    dilemma = np.array([[3.0, 0.0], [5.0, 1.0]])
    for alpha in (1.0, 1e6):
        found = AlphaRank(alpha=alpha).profiles(np.stack([dilemma, dilemma.T]))
        assert found[1, 1] == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("players", [2, 3])
def test_psro_takes_it_by_name(players: int) -> None:
    game = kuhn_poker(players=players)
    solver = po.solver("psro", train_meta=po.build({"part": "solvers.AlphaRank", "alpha": 2.0}))
    state = solver.begin(game)
    for _ in range(4):
        state = solver.iterate(game, state)
    payoffs = game.profile_payoffs(state["strategies"]).numpy()
    mixes = AlphaRank(alpha=2.0)(payoffs, 0)
    assert mixes.shape == (players, 5)
    np.testing.assert_allclose(mixes.sum(1), 1, atol=1e-12)
    assert mixes.min() >= 0


def test_settings_and_tables_that_are_none() -> None:
    with pytest.raises(ValueError, match=r"need finite alpha > 0 and population >= 2, found 0\.0 and 50"):
        AlphaRank(alpha=0.0)
    with pytest.raises(ValueError, match=r"found 1\.0 and 1"):
        AlphaRank(population=1)
    with pytest.raises(GameError, match=r"\[P, K_1, ..., K_P\] of P players, found shape \[3, 2, 2\]"):
        AlphaRank().profiles(np.zeros((3, 2, 2)))
    with pytest.raises(GameError, match="finite numbers"):
        AlphaRank().profiles(np.full((2, 2, 2), np.nan))
    with pytest.raises(GameError, match="payoffs are of 2500 profiles, more than 2000"):
        AlphaRank().profiles(np.zeros((2, 50, 50)))
