"""Exploitability of a game's solution during the iterations of a solver."""

from __future__ import annotations

from polopt.problems import ExtensiveGame
from polopt.solvers import Solver


def exploitabilities(solver: Solver, game: ExtensiveGame, iterations: list[int]) -> list[float]:
    """Returns the exploitability of the solution after each of these iterations, in increasing order."""
    state, found = solver.begin(game), []
    for t in range(1, max(iterations) + 1):
        state = solver.iterate(game, state)
        if t in iterations:
            found.append(game.exploitability(solver.solution(game, state)))
    return found
