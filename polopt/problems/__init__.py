"""Exact problems: games and decision processes on which solvers and metrics can be evaluated without error."""

from polopt.problems.games import Chance, Decision, End, ExtensiveGame, GameError, game_of
from polopt.problems.mdp import TabularMDP
from polopt.problems.named import PROBLEMS, UnknownProblem, find
from polopt.problems.poker import kuhn_poker, leduc_poker
from polopt.problems.protocol import ExactProblem

__all__ = [
    "PROBLEMS",
    "Chance",
    "Decision",
    "End",
    "ExactProblem",
    "ExtensiveGame",
    "GameError",
    "TabularMDP",
    "UnknownProblem",
    "find",
    "game_of",
    "kuhn_poker",
    "leduc_poker",
]
