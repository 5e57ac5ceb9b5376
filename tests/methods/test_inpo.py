"""INPO's exact step against plain NumPy and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import polopt as po
from polopt.problems import preference_game, random_preference_game


def test_steps_are_those_of_plain_numpy() -> None:
    for tau, eta in ((0.1, 0.4), (0.0, 0.4), (0.4, 0.4)):
        game = random_preference_game(2, tau=tau)
        p, mu = game.preference.numpy(), game.reference.numpy()
        pi, solver = mu, po.solver("inpo", eta=eta)
        state = solver.begin(game)
        for _ in range(6):
            pi = mu ** (tau / eta) * pi ** (1 - tau / eta) * np.exp(p @ pi / eta)
            pi = pi / pi.sum()
            state = solver.iterate(game, state)
        np.testing.assert_allclose(solver.solution(game, state).numpy(), pi, rtol=1e-11)


def test_a_fixed_point_is_the_equilibrium() -> None:
    game, solver = preference_game(), po.solver("inpo")
    state = solver.begin(game)
    for _ in range(400):
        state = solver.iterate(game, state)
    pi = solver.solution(game, state)
    best = (game.reference.log() + game.win_rates(pi) / game.tau).softmax(0)
    torch.testing.assert_close(pi, best, rtol=1e-10, atol=1e-12)


def test_without_a_reference_it_is_sppo() -> None:
    game = random_preference_game(1, tau=0.0)
    ends = []
    for solver in (po.solver("inpo", eta=4.0), po.solver("sppo", eta=0.25)):
        state = solver.begin(game)
        for _ in range(5):
            state = solver.iterate(game, state)
        ends.append(solver.solution(game, state))
    torch.testing.assert_close(*ends, rtol=1e-14, atol=0)


def test_an_eta_below_tau_is_refused() -> None:
    with pytest.raises(ValueError, match="a larger eta where eta is its inverse"):
        po.solver("inpo", eta=0.05).begin(preference_game(tau=0.1))
    with pytest.raises(ValueError, match="must be positive, found -1"):
        po.solver("inpo", eta=-1.0)
