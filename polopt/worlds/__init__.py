"""Worlds: where a policy decides, and what its decisions are worth."""

from polopt.worlds.answers import OneAnswer, TaskList
from polopt.worlds.critic import Critic
from polopt.worlds.guess import GuessNumber
from polopt.worlds.jsonl import Jsonl
from polopt.worlds.protocol import Episode, EpisodeError, Step, Task, Tasks, TaskSplit
from polopt.worlds.reasoning_gym import ReasoningGym
from polopt.worlds.recipe import World, build_tasks, parse_world
from polopt.worlds.texts import read_texts
from polopt.worlds.verifiers import VerifierError, Weighted, make_verifier

__all__ = [
    "Critic",
    "Episode",
    "EpisodeError",
    "GuessNumber",
    "Jsonl",
    "OneAnswer",
    "ReasoningGym",
    "Step",
    "Task",
    "TaskList",
    "TaskSplit",
    "Tasks",
    "VerifierError",
    "Weighted",
    "World",
    "build_tasks",
    "make_verifier",
    "parse_world",
    "read_texts",
]
