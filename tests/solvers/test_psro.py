"""Populations, meta-solvers and best responses, against OpenSpiel, enumeration and linear algebra."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import polopt as po
from polopt.checks.solver_checks import random_rules
from polopt.methods.shor_psro import SHORMeta
from polopt.problems import ExtensiveGame, GameError, game_of, kuhn_poker, leduc_poker
from polopt.solvers import MetaSolver, NashLP, ProjectedReplicator, strategy_payoffs


def random_strategies(game: ExtensiveGame, count: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(0)
    rows = torch.rand(count, len(game.actions), generator=g, dtype=torch.double)
    return torch.stack([game.normalised(row * (row > 0.3)) for row in rows])


@pytest.mark.parametrize("players", [2, 3])
def test_payoffs_of_all_profiles(players: int) -> None:
    game = kuhn_poker(players=players)
    strategies = random_strategies(game, 3)
    payoffs = game.profile_payoffs(strategies)
    assert payoffs.shape == (players, *[3] * players)
    for profile in itertools.product(range(3), repeat=players):
        mixed = torch.stack([strategies[profile[p]] for p in range(players)])[
            game.player_of, torch.arange(len(game.actions))
        ]
        torch.testing.assert_close(payoffs[(slice(None), *profile)], game.values(mixed), rtol=0, atol=1e-12)


@pytest.mark.parametrize("players", [2, 3])
def test_a_mixture_earns_what_drawing_a_strategy_earns(players: int) -> None:
    game, g = kuhn_poker(players=players), np.random.default_rng(1)
    strategies, weights = random_strategies(game, 4), g.dirichlet(np.ones(4), players)
    expected = game.profile_payoffs(strategies).numpy()
    for player in range(players):
        expected = np.tensordot(expected, weights[player], (1, 0))
    found = game.values(game.mixture(strategies, torch.from_numpy(weights)))
    assert found.tolist() == pytest.approx(expected.tolist(), abs=1e-12)
    for player in range(players):
        single = strategy_payoffs(game.profile_payoffs(strategies).numpy(), weights, player)
        assert float(single @ weights[player]) == pytest.approx(expected[player], abs=1e-12)


@pytest.mark.parametrize("game", [kuhn_poker(players=3), leduc_poker(), game_of("random", random_rules(2))], ids=str)
def test_a_best_response_earns_the_value_of_one(game: ExtensiveGame) -> None:
    (strategy,) = random_strategies(game, 1)
    best = game.best_response(strategy)
    values = game.counterfactual(strategy, best=True)[len(game.actions) :]
    for player in range(game.players):
        deviated = torch.where(game.player_of == player, best, strategy)
        assert float(game.values(deviated)[player]) == pytest.approx(float(values[player]), abs=1e-12)


def test_replicator_dynamics_are_those_of_openspiel() -> None:
    theirs = pytest.importorskip("open_spiel.python.algorithms.projected_replicator_dynamics")
    for seed, shape, gamma in ((0, (4, 4), 1e-6), (1, (3, 3, 3), 1e-6), (2, (4, 4), 0.1)):
        payoffs = np.random.default_rng(seed).normal(size=(len(shape), *shape))
        expected = theirs.projected_replicator_dynamics(
            list(payoffs), prd_iterations=300, prd_dt=0.05, prd_gamma=gamma, use_approx=False
        )
        found = ProjectedReplicator(steps=300, dt=0.05, gamma=gamma)(payoffs, 0)
        np.testing.assert_allclose(found, np.stack(expected), atol=1e-9)


def test_a_nash_equilibrium_leaves_no_gain() -> None:
    for seed in range(5):
        table = np.random.default_rng(seed).normal(size=(6, 6))
        x, y = NashLP()(np.stack([table, -table]), 0)
        assert x.sum() == pytest.approx(1)
        assert (table @ y).max() - (x @ table).min() == pytest.approx(0, abs=1e-9)
    rock_paper_scissors = np.array([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]])
    for row in NashLP()(np.stack([rock_paper_scissors, -rock_paper_scissors]), 0):
        assert row.tolist() == pytest.approx([1 / 3] * 3)


def test_hybrid_regret_matching_in_plain_python() -> None:
    payoffs = np.random.default_rng(3).normal(size=(2, 3, 3))
    k, rounds = 30, 20 + 2 * 2
    f = k / 75
    blend, heat, bonus = 0.3 - 0.25 * f, 0.5 - 0.49 * f, 0.05 - 0.049 * f
    x, R, before, total = [[1 / 3] * 3, [1 / 3] * 3], [[0.0] * 3, [0.0] * 3], [[0.0] * 3, [0.0] * 3], np.zeros((2, 3))
    for _ in range(rounds):
        for p in (0, 1):
            other = x[1 - p]
            u = [sum((payoffs[0][i][j] if p == 0 else payoffs[1][j][i]) * other[j] for j in range(3)) for i in range(3)]
            c = [v - sum(u) / 3 for v in u]
            q = [1.5 * c[i] - 0.5 * before[p][i] + bonus * (1 - x[p][i]) for i in range(3)]
            top = max(abs(v) for v in q)
            R[p] = [max(0.0, R[p][i] + q[i] / top) for i in range(3)]
            soft = [np.exp(v / heat) for v in u]
            x[p] = [
                (1 - blend) * (R[p][i] / sum(R[p]) if sum(R[p]) else 1 / 3) + blend * soft[i] / sum(soft)
                for i in range(3)
            ]
            before[p] = c
        total += np.array(x)
    meta = SHORMeta(rounds=20, rounds_per_strategy=2)
    np.testing.assert_allclose(meta(payoffs, k), total / rounds, atol=1e-12)
    np.testing.assert_allclose(meta.but({"mean": False})(payoffs, k), x, atol=1e-12)
    np.testing.assert_allclose(meta.but({"scale": 10.0})(10 * payoffs, k), total / rounds, atol=1e-12)
    shortest = meta.but({"most_rounds": 3, "mean": False})(payoffs, k)
    np.testing.assert_allclose(meta.but({"rounds": 3, "rounds_per_strategy": 0, "mean": False})(payoffs, k), shortest)


def test_populations_grow_by_best_responses() -> None:
    game, solver = kuhn_poker(), po.solver("psro", train_meta=MetaSolver())
    state = solver.begin(game)
    for _ in range(3):
        played = game.mixture(
            state["strategies"], torch.full((2, len(state["strategies"])), 1 / len(state["strategies"])).double()
        )
        state = solver.iterate(game, state)
        assert torch.equal(state["strategies"][-1], game.best_response(played))
    assert state["strategies"].shape == (4, 24)
    assert int(state["iteration"]) == 3


def test_an_equilibrium_needs_two_players_of_opposed_payoffs() -> None:
    with pytest.raises(GameError, match=r"two players whose payoffs add up to 0, found .*3 players"):
        po.solver("psro", train_meta=NashLP()).begin(kuhn_poker(players=3))
    with pytest.raises(GameError, match="take another meta-solver"):
        po.solver("shor-psro", eval_meta=NashLP()).begin(kuhn_poker(players=3))
    with pytest.raises(ValueError, match="need steps >= 1, dt > 0 and gamma >= 0, found 1, 0"):
        ProjectedReplicator(steps=1, dt=0.0)
    with pytest.raises(ValueError, match="positive temperatures"):
        SHORMeta(temperature=(0.5, 0.0))
