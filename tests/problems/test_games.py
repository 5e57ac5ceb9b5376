"""Games as tensors, against walks over their trees, against all pure strategies, and against their published sizes."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from polopt.checks.solver_checks import random_rules, reordered
from polopt.problems import (
    Chance,
    Decision,
    End,
    ExtensiveGame,
    GameError,
    UnknownProblem,
    find,
    game_of,
    kuhn_poker,
    leduc_poker,
)
from polopt.problems.games import History, Rules

Table = Mapping[str, Mapping[str, float]]


def random_strategy(game: ExtensiveGame, seed: int, zeros: float = 0.0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    weights = torch.rand(len(game.actions), generator=g, dtype=torch.double)
    return game.normalised(weights * (torch.rand(len(weights), generator=g) >= zeros))


def walked(rules: Rules, table: Table, players: int, history: History = ()) -> list[float]:
    """Every player's expected payoff, by walking over the tree."""
    there = rules(history)
    if isinstance(there, End):
        return list(there.payoffs)
    odds = there.outcomes if isinstance(there, Chance) else table[f"{there.player}: {there.information}"]
    below = {move: walked(rules, table, players, (*history, move)) for move in odds}
    return [sum(p * below[move][i] for move, p in odds.items()) for i in range(players)]


def three_players(history: History, most_moves: int = 4) -> Chance | Decision | End:
    """A coin that player 0 sees, then players in turn say yes or no, having heard the others."""
    if not history:
        return Chance({"heads": 0.3, "tails": 0.7})
    coin, said = history[0], history[1:]
    if len(said) == most_moves:
        seed = hash_of(history)
        return End([math.sin(seed + i) for i in range(3)])
    player = len(said) % 3
    known = (coin, *said) if player == 0 else said
    return Decision(player, " ".join(known) or "nothing", ("yes", "no"))


def hash_of(history: History) -> int:
    return sum(ord(c) * (i + 1) for i, c in enumerate(" ".join(history)))


@pytest.mark.parametrize(("rules", "players"), [(random_rules(3), 2), (random_rules(4), 2), (three_players, 3)])
def test_values_are_those_of_a_walk_over_the_tree(rules: Rules, players: int) -> None:
    game = game_of("game", rules, players=players)
    for seed in range(4):
        strategy = random_strategy(game, seed, zeros=0.3)
        expected = walked(rules, game.table(strategy), players)
        assert game.values(strategy).tolist() == pytest.approx(expected, abs=1e-13)
        assert game.measure(strategy)["value"] == pytest.approx(expected[0], abs=1e-13)


@pytest.mark.parametrize(("rules", "players"), [(random_rules(3), 2), (three_players, 3)])
def test_counterfactual_values_are_the_slope_of_the_payoff(rules: Rules, players: int) -> None:
    """d u_i / d strategy(I, a) = pi_i(I) q(I, a): the payoff is linear in one set's probabilities."""
    game = game_of("game", rules, players=players)
    strategy = random_strategy(game, 5).requires_grad_()
    own = game.realisation(strategy.detach())[game.parent[game.set_of]]
    found = game.counterfactual(strategy.detach())[: len(strategy)] * own
    for player in range(players):
        payoff = (game.realisation(strategy)[game.last].prod(0) * game.chance * game.payoff[player]).sum()
        (slope,) = torch.autograd.grad(payoff, strategy)
        mine = game.player_of == player
        assert mine.any()
        torch.testing.assert_close(found[mine], slope[mine], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("rules", "players"),
    [
        (random_rules(11, "ab", 3), 2),
        (random_rules(25, "ab", 3), 2),
        (functools.partial(three_players, most_moves=3), 3),
    ],
)
def test_a_best_response_is_the_best_of_all_pure_strategies(rules: Rules, players: int) -> None:
    game = game_of("game", rules, players=players)
    strategy = random_strategy(game, 1, zeros=0.3)
    table = game.table(strategy)
    gains = []
    for player in range(game.players):
        own = [place for place in table if place.startswith(f"{player}:")]
        choices = [list(table[place]) for place in own]
        assert 1 < math.prod(map(len, choices)) < 3000
        best = -math.inf
        for picked in itertools.product(*choices):
            pure = {place: {a: float(a == move) for a in table[place]} for place, move in zip(own, picked, strict=True)}
            best = max(best, walked(rules, {**table, **pure}, game.players)[player])
        gains.append(best - walked(rules, table, game.players)[player])
    assert game.exploitability(strategy) == pytest.approx(sum(gains) / game.players, abs=1e-12)


def test_a_best_response_to_a_nash_equilibrium_gains_nothing() -> None:
    """Kuhn's equilibrium: bet a jack with probability alpha, a king with 3 alpha; call with a queen a third more."""
    game, alpha = kuhn_poker(), 0.2
    bets = {
        "0: 0": alpha,
        "0: 1": 0.0,
        "0: 2": 3 * alpha,
        "0: 0 pass bet": 0.0,
        "0: 1 pass bet": alpha + 1 / 3,
        "0: 2 pass bet": 1.0,
        "1: 0 pass": 1 / 3,
        "1: 1 pass": 0.0,
        "1: 2 pass": 1.0,
        "1: 0 bet": 0.0,
        "1: 1 bet": 1 / 3,
        "1: 2 bet": 1.0,
    }
    places = list(game.table(game.uniform()))
    assert sorted(places) == sorted(bets)
    strategy = torch.tensor([p for place in places for p in (1 - bets[place], bets[place])], dtype=torch.double)
    assert game.measure(strategy) == pytest.approx({"exploitability": 0.0, "value": -1 / 18}, abs=1e-15)


def test_the_order_of_actions_and_outcomes_changes_no_value() -> None:
    rules = random_rules(7)
    one, two = game_of("game", rules), game_of("game", reordered(rules))
    strategy = random_strategy(one, 2)
    table = one.table(strategy)
    pairs = zip(two.player_of, two.set_of, two.actions, strict=True)
    again = torch.tensor([table[f"{p}: {two.information[i]}"][a] for p, i, a in pairs], dtype=torch.double)
    assert two.actions != one.actions
    assert two.measure(again) == pytest.approx(one.measure(strategy), abs=1e-14)


def test_the_games_have_their_sizes() -> None:
    kuhn, leduc = kuhn_poker(), leduc_poker()
    assert (len(kuhn.information), kuhn.last.shape[1]) == (12, 30)
    # 6 sets a player and card in the first round; 5 ways into the second, with 3 open cards.
    assert len(leduc.information) == 288
    assert torch.bincount(leduc.set_of).min() == 2
    assert len(kuhn_poker(ranks=5).information) == 20
    assert leduc_poker(raises=0).values(leduc_poker(raises=0).uniform()).abs().max() < 1e-15
    for game in (kuhn, leduc):
        assert torch.equal(game.payoff[0], -game.payoff[1])
        full = torch.ones(len(game.actions), dtype=torch.double)
        assert float(game.chance.sum()) > 1
        assert game.realisation(full).eq(1).all()
        reached = game.realisation(game.uniform())[game.last].prod(0) * game.chance
        assert float(reached.sum()) == pytest.approx(1.0, abs=1e-14)


# Bad input ---------------------------------------------------------------------------------------------------------

END = End((1, -1))


def after(**there: object):
    """Rules that are fixed by the moves, joined with blanks; "" is the beginning."""
    return lambda history: there.get("_".join(history) or "begin", END)


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        (
            after(begin=Chance({"a": 0.5, "b": 0.4})),
            "after the beginning the chance outcomes need positive .* sum to 1",
        ),
        (after(begin=Chance({"a": 1.0, "b": 0.0})), "the chance outcomes need positive"),
        (after(begin=Chance({})), "the chance outcomes need positive"),
        (after(begin=Decision(2, "x", ("a",))), "player 2 moves, and the players are 0 to 1"),
        (after(begin=Decision(0, "x", ())), "needs actions of different names"),
        (after(begin=Decision(0, "x", ("a", "a"))), "needs actions of different names"),
        (after(begin=End((1,))), "the end needs 2 finite payoffs, found \\[1\\]"),
        (after(begin=End((math.nan, 0))), "2 finite payoffs"),
        (after(begin="stop"), "the rules return 'stop', expected a Chance, a Decision or an End"),
        (
            after(begin=Chance({"a": 0.5, "b": 0.5}), a=Decision(0, "x", ("l", "r")), b=Decision(0, "x", ("l",))),
            "after b the actions are l, and elsewhere in the same information set 'x' of player 0 l, r",
        ),
        (
            after(begin=Decision(0, "x", ("l", "r")), l=Decision(0, "y", ("l",)), r=Decision(0, "y", ("l",))),
            "player 0 forgets: r belongs to the information set 'y'",
        ),
    ],
)
def test_rules_that_contradict_themselves_are_refused(rules: Rules, sentence: str) -> None:
    with pytest.raises(GameError, match=f"^broken.*{sentence}"):
        game_of("broken", rules)


def test_a_game_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polopt.problems.games.MOST_HISTORIES", 1000)
    with pytest.raises(GameError, match="more than 1,000 histories"):
        game_of("endless", lambda history: Decision(0, " ".join(history), ("on",)))


def test_what_is_no_strategy_is_refused() -> None:
    game = kuhn_poker()
    good = game.uniform()
    for bad in (good[:-1], good.float(), good * 1.01, good * math.nan):
        with pytest.raises(GameError, match="a strategy of kuhn-poker"):
            game.exploitability(bad)
    bent = good.clone()
    bent[:2] = torch.tensor([-0.5, 1.5])
    with pytest.raises(GameError, match=r"found \[-0.5, 1.5\] in '0'"):
        game.values(bent)


def test_problems_have_names_and_settings(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find("Kuhn_Poker").name == "kuhn-poker"
    assert len(find({"name": "kuhn-poker", "ranks": 4}).information) == 16
    with pytest.raises(UnknownProblem, match="did you mean 'leduc-poker'"):
        find("leduc-pokr")
    with pytest.raises(UnknownProblem, match="needs its name"):
        find({"ranks": 4})
    with pytest.raises(TypeError, match="no setting 'rank'; did you mean 'ranks'"):
        find({"name": "kuhn-poker", "rank": 4})
    with pytest.raises(ValueError, match="setting 'ranks' = 'many' is not valid"):
        find({"name": "kuhn-poker", "ranks": "many"})
    with pytest.raises(GameError, match="ranks must be at least 2"):
        find({"name": "kuhn-poker", "ranks": 1})
    with pytest.raises(GameError, match="three cards"):
        leduc_poker(ranks=1, suits=2)
    (tmp_path / "own.py").write_text(
        "from polopt.problems import kuhn_poker\n"
        "def four():\n    return kuhn_poker(ranks=4)\n"
        "def none():\n    return 3\n"
    )
    monkeypatch.chdir(tmp_path)
    assert len(find("own.py:four").information) == 16
    with pytest.raises(ValueError, match=r"own.py:none' returned 3, expected a problem"):
        find("own.py:none")
