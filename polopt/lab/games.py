"""Exploitability and duality gap of a game's solution during the iterations of a solver."""

from __future__ import annotations

from collections.abc import Mapping

from polopt.problems import ExtensiveGame, PreferenceGame, random_preference_game
from polopt.solvers import Solver


def exploitabilities(solver: Solver, game: ExtensiveGame, iterations: list[int]) -> list[float]:
    """Returns the exploitability of the solution after each of these iterations, in increasing order."""
    state, found = solver.begin(game), []
    for t in range(1, max(iterations) + 1):
        state = solver.iterate(game, state)
        if t in iterations:
            found.append(game.exploitability(solver.solution(game, state)))
    return found


def exploitability_table(
    solvers: Mapping[str, Solver], games: Mapping[str, ExtensiveGame], iterations: list[int]
) -> dict[tuple[str, str, int], float]:
    """Returns the exploitability for each game, solver and number of iterations, by (game, solver, iterations)."""
    return {
        (game, name, t): x
        for game, rules in games.items()
        for name, solver in solvers.items()
        for t, x in zip(iterations, exploitabilities(solver, rules, iterations), strict=True)
    }


def duality_gaps(solver: Solver, game: PreferenceGame, iterations: list[int]) -> list[float]:
    """Returns the duality gap of the solution after each of these iterations, in increasing order."""
    state, found = solver.begin(game), []
    for t in range(1, max(iterations) + 1):
        state = solver.iterate(game, state)
        if t in iterations:
            found.append(game.duality_gap(solver.solution(game, state)))
    return found


def random_games(count: int, *, tau: float = 0.1, transitive: float = 0.0) -> list[PreferenceGame]:
    """Returns random preference games of six answers."""
    return [random_preference_game(seed, tau=tau, transitive=transitive) for seed in range(count)]
