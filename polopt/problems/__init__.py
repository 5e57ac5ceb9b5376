"""Exact problems: games, decision processes and bilevel problems, on which solvers and metrics are evaluated without
error."""

from polopt.problems.alignment import (
    PreferenceAlignment,
    RewardAlignment,
    RewardDesign,
    preference_alignment,
    reward_design,
)
from polopt.problems.bilevel import (
    BilevelError,
    BilevelProblem,
    DataCleaning,
    ExponentialBilevel,
    data_cleaning,
    exponential_bilevel,
)
from polopt.problems.cases import CaseError, CaseTasks, CopiedCases, copied_cases
from polopt.problems.choices import ChoiceError, OfflineChoices, human_choices, offline_choices
from polopt.problems.dice import liars_dice
from polopt.problems.games import Chance, Decision, End, ExtensiveGame, GameError, game_of
from polopt.problems.hiring import HiringError, HiringProblem, Mechanism, random_hiring
from polopt.problems.justified import JustificationError, JustifiedDecisions, justified_decisions
from polopt.problems.mdp import TabularMDP
from polopt.problems.named import PROBLEMS, UnknownProblem, find
from polopt.problems.open_spiel import open_spiel_game
from polopt.problems.paid_judges import paid_judges
from polopt.problems.poker import kuhn_poker, leduc_poker
from polopt.problems.preference_game import PreferenceGame, preference_game, random_preference_game
from polopt.problems.preference_transfer import PreferenceTransfer, TransferError, preference_transfer
from polopt.problems.protocol import ExactProblem
from polopt.problems.thought_graph import (
    FixedSchedule,
    GraphState,
    ThoughtGraphError,
    ThoughtGraphs,
    majority,
    thought_graph,
)
from polopt.problems.tool_plans import PlanError, ToolPlans, tool_plans

__all__ = [
    "PROBLEMS",
    "BilevelError",
    "BilevelProblem",
    "CaseError",
    "CaseTasks",
    "Chance",
    "ChoiceError",
    "CopiedCases",
    "DataCleaning",
    "Decision",
    "End",
    "ExactProblem",
    "ExponentialBilevel",
    "ExtensiveGame",
    "FixedSchedule",
    "GameError",
    "GraphState",
    "HiringError",
    "HiringProblem",
    "JustificationError",
    "JustifiedDecisions",
    "Mechanism",
    "OfflineChoices",
    "PlanError",
    "PreferenceAlignment",
    "PreferenceGame",
    "PreferenceTransfer",
    "RewardAlignment",
    "RewardDesign",
    "TabularMDP",
    "ThoughtGraphError",
    "ThoughtGraphs",
    "ToolPlans",
    "TransferError",
    "UnknownProblem",
    "copied_cases",
    "data_cleaning",
    "exponential_bilevel",
    "find",
    "game_of",
    "human_choices",
    "justified_decisions",
    "kuhn_poker",
    "leduc_poker",
    "liars_dice",
    "majority",
    "offline_choices",
    "open_spiel_game",
    "paid_judges",
    "preference_alignment",
    "preference_game",
    "preference_transfer",
    "random_hiring",
    "random_preference_game",
    "reward_design",
    "thought_graph",
    "tool_plans",
]
