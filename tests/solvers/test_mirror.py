"""The exact rounds of INPO and of SPPO, as settings of mirror descent, against plain NumPy and a fixed point."""

from __future__ import annotations

import numpy as np
import torch

from polopt.problems import preference_game, random_preference_game
from polopt.solvers import Opponent, PreferenceMirrorDescent, StepSize


def test_rounds_of_inpo_are_those_of_plain_numpy() -> None:
    for tau, eta in ((0.1, 0.4), (0.0, 0.4), (0.4, 0.4)):
        game = random_preference_game(2, tau=tau)
        p, mu = game.preference.numpy(), game.reference.numpy()
        pi, solver = mu, PreferenceMirrorDescent(step_size=StepSize(lr=1 / eta), opponent=Opponent())
        state = solver.begin(game)
        for _ in range(6):
            pi = mu ** (tau / eta) * pi ** (1 - tau / eta) * np.exp(p @ pi / eta)
            pi = pi / pi.sum()
            state = solver.iterate(game, state)
        np.testing.assert_allclose(solver.solution(game, state).numpy(), pi, rtol=1e-11)


def test_their_fixed_point_is_the_equilibrium() -> None:
    game, solver = preference_game(), PreferenceMirrorDescent(step_size=StepSize(lr=1.0), opponent=Opponent())
    state = solver.begin(game)
    for _ in range(400):
        state = solver.iterate(game, state)
    pi = solver.solution(game, state)
    best = (game.reference.log() + game.win_rates(pi) / game.tau).softmax(0)
    torch.testing.assert_close(pi, best, rtol=1e-10, atol=1e-12)


def test_rounds_of_sppo_are_multiplicative_weights() -> None:
    game, eta = random_preference_game(1, tau=0.0), 0.25
    solver = PreferenceMirrorDescent(step_size=StepSize(lr=eta), regularised=False, opponent=Opponent())
    state, pi = solver.begin(game), game.reference
    for _ in range(5):
        pi = (pi.log() + eta * game.win_rates(pi)).softmax(0)
        state = solver.iterate(game, state)
    torch.testing.assert_close(solver.solution(game, state), pi, rtol=1e-14, atol=0)
