"""Worlds: the environments in which a policy acts and by which its actions are rewarded."""

from polopt.worlds.answers import OneAnswer, TaskList
from polopt.worlds.apps import Apps
from polopt.worlds.chains import Chains
from polopt.worlds.critic import Critic
from polopt.worlds.dataset import DatasetReader
from polopt.worlds.episodes import environment
from polopt.worlds.functions import VerifierError
from polopt.worlds.guarded import GuardedTasks
from polopt.worlds.guess import GuessNumber
from polopt.worlds.gymnasium_games import GymnasiumTasks
from polopt.worlds.interpreter import Interpreter
from polopt.worlds.labelled import LabelledReader, RankedReader
from polopt.worlds.minigrid_words import MiniGridTasks
from polopt.worlds.noisy import NoisyTasks
from polopt.worlds.pairs import PairReader
from polopt.worlds.planned import PlannedTasks
from polopt.worlds.policy_graph import PolicyGraph, PolicyTest, policy_test_rows, policy_violations
from polopt.worlds.protocol import (
    Episode,
    EpisodeError,
    RatedAnswer,
    Step,
    Task,
    Tasks,
    TaskSplit,
    WorldError,
    signals_of,
)
from polopt.worlds.reasoning_gym import ReasoningGym
from polopt.worlds.recipe import World, build_tasks, parse_world
from polopt.worlds.retrieval import Retrieval, SearchEngine
from polopt.worlds.revisions import revision_dialogues
from polopt.worlds.rulebook import Rulebook
from polopt.worlds.screens import Screens
from polopt.worlds.second_chance import SecondChanceTasks
from polopt.worlds.shop import Shop, ShopSession, shop_graph
from polopt.worlds.subgoals import SubgoalTasks
from polopt.worlds.text_grid import TextGrid
from polopt.worlds.texts import read_texts
from polopt.worlds.textworld_games import TextWorldGames
from polopt.worlds.tool_use import ToolUse, calculator, python_tool
from polopt.worlds.tools import ToolSession, described_tools, tool_calls, tool_environment
from polopt.worlds.unit_tests import UnitTests
from polopt.worlds.verifiers import Weighted, make_verifier

__all__ = [
    "Apps",
    "Chains",
    "Critic",
    "DatasetReader",
    "Episode",
    "EpisodeError",
    "GuardedTasks",
    "GuessNumber",
    "GymnasiumTasks",
    "Interpreter",
    "LabelledReader",
    "MiniGridTasks",
    "NoisyTasks",
    "OneAnswer",
    "PairReader",
    "PlannedTasks",
    "PolicyGraph",
    "PolicyTest",
    "RankedReader",
    "RatedAnswer",
    "ReasoningGym",
    "Retrieval",
    "Rulebook",
    "Screens",
    "SearchEngine",
    "SecondChanceTasks",
    "Shop",
    "ShopSession",
    "Step",
    "SubgoalTasks",
    "Task",
    "TaskList",
    "TaskSplit",
    "Tasks",
    "TextGrid",
    "TextWorldGames",
    "ToolSession",
    "ToolUse",
    "UnitTests",
    "VerifierError",
    "Weighted",
    "World",
    "WorldError",
    "build_tasks",
    "calculator",
    "described_tools",
    "environment",
    "make_verifier",
    "parse_world",
    "policy_test_rows",
    "policy_violations",
    "python_tool",
    "read_texts",
    "revision_dialogues",
    "shop_graph",
    "signals_of",
    "tool_calls",
    "tool_environment",
]
