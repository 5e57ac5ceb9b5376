"""SPO's mean of policies against plain NumPy and the linear programme of the game."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import torch

import polopt as po
from polopt.problems import PreferenceGame, random_preference_game


def winner(game: PreferenceGame) -> np.ndarray:
    """The minimax winner: max v with P' pi >= v, by a linear programme."""
    p = game.preference.numpy()
    n = len(p)
    found = scipy.optimize.linprog(
        np.append(np.zeros(n), -1.0),
        A_ub=np.hstack([-p.T, np.ones((n, 1))]),
        b_ub=np.zeros(n),
        A_eq=np.append(np.ones(n), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0, 1)] * n + [(None, None)],
    )
    return found.x[:n]


def test_the_solution_is_the_mean_of_the_policies() -> None:
    game, solver = random_preference_game(1, tau=0.0), po.solver("spo-minimax", lr=0.3)
    state, pi, seen = solver.begin(game), game.reference.numpy(), []
    np.testing.assert_allclose(solver.solution(game, state).numpy(), pi)
    for _ in range(9):
        seen.append(pi)
        pi = pi * np.exp(0.3 * (game.preference.numpy() @ pi))
        pi = pi / pi.sum()
        state = solver.iterate(game, state)
    np.testing.assert_allclose(solver.solution(game, state).numpy(), np.mean(seen, 0), rtol=1e-11)


def test_the_mean_approaches_the_winner_of_the_linear_programme() -> None:
    for seed in (1, 6):
        game, solver = random_preference_game(seed, 4, tau=0.0), po.solver("spo-minimax", lr=0.1)
        state = solver.begin(game)
        for _ in range(6000):
            state = solver.iterate(game, state)
        best = torch.from_numpy(winner(game)).clamp(min=0)
        assert game.duality_gap(best / best.sum()) == pytest.approx(0, abs=1e-9)
        least = [float((game.preference.T @ policy).min()) for policy in (best, solver.solution(game, state))]
        assert 0 <= least[0] - least[1] < 0.03
