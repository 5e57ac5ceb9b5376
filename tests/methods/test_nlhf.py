"""Preference games and mirror descent in them, against SciPy's root finder and linear programmes, and plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import torch

import polopt as po
from polopt.problems import PreferenceGame, find, preference_game, random_preference_game
from polopt.problems.games import GameError
from polopt.solvers import (
    AveragedOpponent,
    HarmonicStepSize,
    Opponent,
    OwnMixture,
    PreferenceMirrorDescent,
    StepSize,
)

GAMES = [preference_game(), random_preference_game(3), random_preference_game(4, 8, tau=0.3)]


def ran(solver: PreferenceMirrorDescent, game: PreferenceGame, steps: int) -> torch.Tensor:
    state = solver.begin(game)
    for _ in range(steps):
        state = solver.iterate(game, state)
    return solver.solution(game, state)


def equilibrium(game: PreferenceGame) -> np.ndarray:
    """The policy in proportion to mu exp(P pi / tau), by a root finder, from the solution of the game at larger tau."""
    p, mu = game.preference.numpy(), game.reference.numpy()
    logits = np.log(mu)
    for tau in np.geomspace(3.0, game.tau, 20):

        def off(z: np.ndarray, tau: float = float(tau)) -> np.ndarray:
            pi = np.exp(z - z.max())
            target = np.log(mu) + p @ (pi / pi.sum()) / tau
            return z - target + target.mean()

        logits = scipy.optimize.fsolve(off, logits, xtol=1e-13)
    pi = np.exp(logits - logits.max())
    return pi / pi.sum()


@pytest.mark.parametrize("game", GAMES, ids=lambda g: g.name)
def test_the_equilibrium_is_that_of_a_root_finder(game: PreferenceGame) -> None:
    expected = torch.from_numpy(equilibrium(game))
    assert game.duality_gap(expected) == pytest.approx(0, abs=1e-9)
    found = ran(po.solver("nlhf", lr=1 / game.tau, decreasing=True), game, 3000)
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-3)
    found = ran(po.solver("nlhf", opponent="average", decay=0.5), game, 3000)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_steps_are_those_of_plain_numpy() -> None:
    game = GAMES[1]
    p, mu, pi = game.preference.numpy(), game.reference.numpy(), game.reference.numpy()
    for _ in range(7):
        mix = pi ** (1 - 0.3 * game.tau) * mu ** (0.3 * game.tau)
        mix = mix / mix.sum()
        pi = mix * np.exp(0.3 * (p @ mix))
        pi = pi / pi.sum()
    np.testing.assert_allclose(ran(po.solver("nlhf", lr=0.3), game, 7).numpy(), pi, rtol=1e-12)


def test_the_gap_is_that_of_a_search_over_policies() -> None:
    for game in GAMES:
        g = torch.Generator().manual_seed(0)
        policy = torch.randn(len(game.reference), generator=g, dtype=torch.double).softmax(0)

        def payoff(one: torch.Tensor, two: torch.Tensor, game: PreferenceGame = game) -> torch.Tensor:
            kl = [(v * (v / game.reference).log()).sum() for v in (one, two)]
            return one @ game.preference @ two - game.tau * kl[0] + game.tau * kl[1]

        logits = torch.zeros_like(policy).requires_grad_()
        optimiser = torch.optim.LBFGS([logits], max_iter=500, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

        def closure(logits=logits, optimiser=optimiser, policy=policy, payoff=payoff) -> torch.Tensor:
            optimiser.zero_grad()
            loss = -payoff(logits.softmax(0), policy)
            loss.backward()
            return loss

        optimiser.step(closure)
        best = logits.detach().softmax(0)
        exact = payoff(best, policy) - payoff(policy, best)
        assert game.duality_gap(policy) == pytest.approx(float(exact), abs=1e-6)


def test_without_regularisation_the_gap_is_that_of_pure_answers() -> None:
    game = preference_game(tau=0.0)
    assert game.duality_gap(torch.tensor([0.3, 0.3, 0.4], dtype=torch.double)) == pytest.approx(0, abs=1e-12)
    assert game.duality_gap(torch.tensor([1.0, 0.0, 0.0]).double()) == pytest.approx(0.6)
    assert game.duality_gap(torch.full((3,), 1 / 3, dtype=torch.double)) == pytest.approx(0.2 / 3)


def test_opponents_and_step_sizes_are_their_formulas() -> None:
    game = GAMES[0]
    mixture, policy, memory = (torch.randn(3, generator=torch.Generator().manual_seed(i)).double() for i in range(3))
    assert Opponent()(mixture, policy, memory) is policy
    assert OwnMixture()(mixture, policy, memory) is mixture
    part = AveragedOpponent(decay=0.75)
    torch.testing.assert_close(part(mixture, policy, memory), memory.softmax(0))
    torch.testing.assert_close(part.remember(memory, policy), 0.75 * memory + 0.25 * policy)
    assert [HarmonicStepSize(lr=5.0)(t, 0.1) for t in (1, 3, 9)] == pytest.approx([5.0, 5.0, 2.0])
    assert HarmonicStepSize(lr=0.4)(9, 0.0) == 0.4
    forgetful = ran(po.solver("nlhf", opponent="average", decay=0.0), game, 5)
    torch.testing.assert_close(forgetful, ran(PreferenceMirrorDescent(opponent=Opponent()), game, 5))


def test_methods_differ_in_parts_alone() -> None:
    found = po.diff(po.solver("nlhf"), po.solver("spo-minimax"))
    assert {path for path, *_ in found} == {"opponent", "average", "regularised"}


def test_bad_input_is_named() -> None:
    game = preference_game()
    with pytest.raises(ValueError, match="exceeds 1"):
        po.solver("nlhf", lr=11.0).begin(game)
    with pytest.raises(ValueError, match="lr must be positive"):
        StepSize(lr=0.0)
    with pytest.raises(ValueError, match="0 <= decay < 1"):
        po.solver("nlhf", opponent="average", decay=1.0)
    with pytest.raises(GameError, match="average both orders first"):
        PreferenceGame(torch.full((2, 2), 0.6).double(), torch.full((2,), 0.5).double())
    with pytest.raises(GameError, match="reference must be positive"):
        preference_game(reference=(1.0, 0.0, 0.0))
    with pytest.raises(GameError, match="sum to 1"):
        game.duality_gap(torch.ones(3).double())
    with pytest.raises(TypeError, match="class PreferenceGame"):
        po.solver("nlhf").begin(find("kuhn-poker"))
    assert find({"name": "preference-game", "tau": 0.5}).tau == 0.5
    assert game.table(game.reference) == {"policy": {"first": 0.7, "second": 0.2, "third": 0.1}}
