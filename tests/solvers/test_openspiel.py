"""The games, best responses and iterations of OpenSpiel."""

from __future__ import annotations

import itertools

import pytest
import torch

import polopt as po
from polopt.problems import ExtensiveGame, GameError, find, kuhn_poker, leduc_poker, liars_dice, open_spiel_game
from polopt.solvers import LinearWeight, RegretMinimizer, Solver

pyspiel = pytest.importorskip("pyspiel")
GAMES = {"kuhn_poker": kuhn_poker, "leduc_poker": leduc_poker}
MOVES = {"kuhn_poker": ("pass", "bet"), "leduc_poker": ("fold", "call", "raise")}
SUITS = {"kuhn_poker": 1, "leduc_poker": 2}


def places(name: str) -> dict[str, tuple[str, list[int]]]:
    """OpenSpiel's information state -> ours, as `table` names it, and its legal actions."""
    found, todo = {}, [(pyspiel.load_game(name).new_initial_state(), [], [])]
    while todo:
        state, hands, seen = todo.pop()
        if state.is_terminal():
            continue
        for action in state.legal_actions():
            if state.is_chance_node():
                card = str(action // SUITS[name])
                grown = ([*hands, card], seen) if len(hands) < 2 else (hands, [*seen, card])
            else:
                grown = (hands, [*seen, MOVES[name][action]])
            todo.append((state.child(action), *grown))
        if not state.is_chance_node():
            player = state.current_player()
            ours = " ".join([f"{player}:", hands[player], *seen])
            found[state.information_state_string()] = (ours, state.legal_actions())
    return found


@pytest.mark.parametrize("name", GAMES)
def test_exploitability_and_values_of_random_strategies(name: str) -> None:
    game, theirs = GAMES[name](), pyspiel.load_game(name)
    known = places(name)
    assert {ours for ours, _ in known.values()} == set(game.table(game.uniform()))
    for seed in range(3):
        g = torch.Generator().manual_seed(seed)
        weights = torch.rand(len(game.actions), generator=g, dtype=torch.double)
        strategy = game.normalised(weights * (torch.rand(len(weights), generator=g) > 0.2))
        table = game.table(strategy)
        policy = pyspiel.TabularPolicy(
            {
                state: [(action, table[ours][MOVES[name][action]]) for action in actions]
                for state, (ours, actions) in known.items()
            }
        )
        assert game.exploitability(strategy) == pytest.approx(pyspiel.exploitability(theirs, policy), abs=1e-12)
        values = pyspiel.expected_returns(theirs.new_initial_state(), policy, -1, False)
        assert game.values(strategy).tolist() == pytest.approx(values, abs=1e-12)


def exploitabilities(solver: Solver, game: ExtensiveGame, iterations: int, every: int = 1) -> list[float]:
    state, found = solver.begin(game), []
    for t in range(1, iterations + 1):
        state = solver.iterate(game, state)
        if t % every == 0:
            found.append(game.exploitability(solver.solution(game, state)))
    return found


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize(("slug", "theirs"), [("cfr", "CFRSolver"), ("cfr-plus", "CFRPlusSolver")])
def test_twenty_iterations_in_cpp(name: str, slug: str, theirs: str) -> None:
    settings = {"alternating": True} if slug == "cfr" else {}
    every = 1 if name == "kuhn_poker" else 5  # its best response takes half a second on Leduc
    game = pyspiel.load_game(name)
    solver, expected = getattr(pyspiel, theirs)(game), []
    for t in range(1, 21):
        solver.evaluate_and_update_policy()
        if t % every == 0:
            expected.append(pyspiel.exploitability(game, solver.average_policy()))
    found = exploitabilities(po.solver(slug, **settings), GAMES[name](), 20, every)
    assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "iterations", "linear", "alternating", "plus"),
    [
        *(("kuhn_poker", 20, *flags) for flags in itertools.product((False, True), repeat=3)),
        ("leduc_poker", 2, False, False, False),
        ("leduc_poker", 2, True, True, True),
    ],
)
def test_their_solvers_in_python(name: str, iterations: int, linear: bool, alternating: bool, plus: bool) -> None:
    """Twenty iterations on Leduc take OpenSpiel's Python 15 s; those are compared with its C++ above."""
    cfr = pytest.importorskip("open_spiel.python.algorithms.cfr")
    game = pyspiel.load_game(name)
    settings = {"linear_averaging": linear, "alternating_updates": alternating, "regret_matching_plus": plus}
    solver, expected = cfr._CFRSolver(game, **settings), []
    for _ in range(iterations):
        solver.evaluate_and_update_policy()
        rows = solver.average_policy().to_dict()  # state -> pairs of an action and its probability
        expected.append(pyspiel.exploitability(game, pyspiel.TabularPolicy(rows)))
    ours = RegretMinimizer(alternating=alternating)
    ours = ours.but(accumulate=po.solvers.PositiveRegretSum()) if plus else ours
    ours = ours.but(average=LinearWeight()) if linear else ours
    assert exploitabilities(ours, GAMES[name](), iterations) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize(("slug", "theirs"), [("cfr", "CFRSolver"), ("cfr-plus", "CFRPlusSolver")])
def test_average_policies_in_cpp(name: str, slug: str, theirs: str) -> None:
    """On the game as OpenSpiel has it, suits and all."""
    game, solver = open_spiel_game(game=name), po.solver(slug, **({"alternating": True} if slug == "cfr" else {}))
    there = getattr(pyspiel, theirs)(pyspiel.load_game(name))
    state = solver.begin(game)
    for t in range(1, 11):
        state = solver.iterate(game, state)
        there.evaluate_and_update_policy()
        if t not in (1, 3, 10):
            continue
        table, compared = game.table(solver.solution(game, state)), 0
        for information, odds in there.tabular_average_policy().policy_table().items():
            key = information.replace("\n", " ")
            (row,) = [table[f"{p}: {key}"] for p in range(2) if f"{p}: {key}" in table]
            assert list(row.values()) == pytest.approx([p for _, p in odds], abs=1e-9)
            compared += 1
        assert compared == len(game.information)


SAME = {
    "kuhn_poker(players=3)": lambda: kuhn_poker(players=3),
    "kuhn_poker(players=4)": lambda: kuhn_poker(players=4),
    "liars_dice(dice_sides=3)": lambda: liars_dice(sides=3),
    "liars_dice(dice_sides=4)": liars_dice,
}


@pytest.mark.parametrize("name", SAME)
def test_games_of_more_players_and_dice(name: str) -> None:
    """As many sets and ends, and exploitability and values of strategies that solvers find from both."""
    game, theirs = SAME[name](), find({"name": "open-spiel", "game": name})
    assert isinstance(theirs, ExtensiveGame)
    assert len(game.information) == len(theirs.information)
    assert game.last.shape == theirs.last.shape
    assert sorted(game.chance.tolist()) == pytest.approx(sorted(theirs.chance.tolist()), abs=1e-15)
    for slug in ("cfr-plus", "pdcfr-plus"):
        assert exploitabilities(po.solver(slug), game, 9, 3) == pytest.approx(
            exploitabilities(po.solver(slug), theirs, 9, 3), abs=1e-12
        )
    strategy = theirs.normalised(torch.arange(1.0, len(theirs.actions) + 1, dtype=torch.double).sin().abs())
    table = theirs.table(strategy)
    policy, loaded = {}, pyspiel.load_game(name)
    todo = [loaded.new_initial_state()]
    while todo:
        state = todo.pop()
        todo += [] if state.is_terminal() else [state.child(a) for a in state.legal_actions()]
        if not state.is_terminal() and not state.is_chance_node():
            row = table[f"{state.current_player()}: " + state.information_state_string().replace("\n", " ")]
            policy[state.information_state_string()] = list(zip(state.legal_actions(), row.values(), strict=True))
    tabular = pyspiel.TabularPolicy(policy)
    values = pyspiel.expected_returns(loaded.new_initial_state(), tabular, -1, False)
    assert theirs.values(strategy).tolist() == pytest.approx(values, abs=1e-12)
    gap = pyspiel.nash_conv(loaded, tabular) / loaded.num_players()
    assert theirs.exploitability(strategy) == pytest.approx(gap, abs=1e-9)


@pytest.mark.parametrize(
    ("game", "sentence"),
    [
        ("no_such_game", "game = 'no_such_game' cannot be loaded"),
        ("goofspiel(num_cards=3)", "has simultaneous moves; name it as turn_based_simultaneous_game"),
    ],
)
def test_games_that_cannot_be_read(game: str, sentence: str) -> None:
    with pytest.raises(GameError, match=sentence):
        open_spiel_game(game=game)


def test_a_game_of_simultaneous_moves_in_turn() -> None:
    name = "turn_based_simultaneous_game(game=goofspiel(num_cards=3,points_order=descending))"
    game = open_spiel_game(game=name)
    assert exploitabilities(po.solver("cfr-plus"), game, 50, 50)[0] < 0.02
