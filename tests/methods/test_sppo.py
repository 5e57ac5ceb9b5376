"""SPPO's exact step against plain NumPy, and against the gradient of its square loss."""

from __future__ import annotations

import numpy as np
import pytest

import polopt as po
from polopt.problems import random_preference_game


def test_steps_are_multiplicative_weights_whatever_tau() -> None:
    for tau in (0.0, 0.5):
        game = random_preference_game(2, tau=tau)
        pi, solver = game.reference.numpy(), po.solver("sppo", eta=0.7)
        state = solver.begin(game)
        for _ in range(6):
            pi = pi * np.exp(0.7 * (game.preference.numpy() @ pi))
            pi = pi / pi.sum()
            state = solver.iterate(game, state)
        np.testing.assert_allclose(solver.solution(game, state).numpy(), pi, rtol=1e-12)


def test_the_step_solves_the_square_loss_with_the_exact_normaliser() -> None:
    """At the step, E over answers of pi of (log ratio - eta P + log Z)^2 is 0."""
    game, solver = random_preference_game(5), po.solver("sppo", eta=2.0)
    before = solver.begin(game)
    after = solver.iterate(game, before)
    pi = before["log_policy"].exp()
    wins = game.win_rates(pi)
    normaliser = (pi * (2.0 * wins).exp()).sum().log()
    residual = after["log_policy"] - before["log_policy"] - 2.0 * wins + normaliser
    assert float((pi * residual**2).sum()) < 1e-28
    assert float(pi @ wins) == pytest.approx(0.5)


def test_a_step_size_must_be_positive() -> None:
    with pytest.raises(ValueError, match="lr must be positive, found 0"):
        po.solver("sppo", eta=0.0)
