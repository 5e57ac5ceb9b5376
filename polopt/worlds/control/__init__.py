"""Worlds of control: environments of gymnasium that step all copies at once, and classical rules for them.

Importing this package registers them, as polopt/Fishery-v0. It needs gymnasium.
"""

import gymnasium

from polopt.worlds.control.chunks import ActionChunk, ChunkedWorld
from polopt.worlds.control.coverage import Coverage, FrontierRule, RandomWalk
from polopt.worlds.control.embodiments import EMBODIMENTS, EmbodiedNavigation, GoToGoal
from polopt.worlds.control.fishery import (
    CautionaryRule,
    ConstantEscapement,
    ConstantMortality,
    Fishery,
    FisheryOptimum,
)
from polopt.worlds.control.hidden import HiddenDynamics, HiddenDynamicsOptimum
from polopt.worlds.control.juggling import Juggling, MirrorLaw
from polopt.worlds.control.lock import CombinationLock, LockRule
from polopt.worlds.control.logged_model import DensityRegion, LoggedModel
from polopt.worlds.control.pathfinding import FollowPath, Pathfinding, PlannedPathfinding
from polopt.worlds.control.rule import ControlRule, ProgramRule, RandomRule, TunedRule, episode_returns
from polopt.worlds.control.world import StepWorld

__all__ = [
    "EMBODIMENTS",
    "ActionChunk",
    "CautionaryRule",
    "ChunkedWorld",
    "CombinationLock",
    "ConstantEscapement",
    "ConstantMortality",
    "ControlRule",
    "Coverage",
    "DensityRegion",
    "EmbodiedNavigation",
    "Fishery",
    "FisheryOptimum",
    "FollowPath",
    "FrontierRule",
    "GoToGoal",
    "HiddenDynamics",
    "HiddenDynamicsOptimum",
    "Juggling",
    "LockRule",
    "LoggedModel",
    "MirrorLaw",
    "Pathfinding",
    "PlannedPathfinding",
    "ProgramRule",
    "RandomRule",
    "RandomWalk",
    "StepWorld",
    "TunedRule",
    "episode_returns",
]
WORLDS: dict[str, type[StepWorld]] = {
    "polopt/CombinationLock-v0": CombinationLock,
    "polopt/Coverage-v0": Coverage,
    "polopt/EmbodiedNavigation-v0": EmbodiedNavigation,
    "polopt/Fishery-v0": Fishery,
    "polopt/HiddenDynamics-v0": HiddenDynamics,
    "polopt/Juggling-v0": Juggling,
    "polopt/LoggedModel-v0": LoggedModel,
    "polopt/Pathfinding-v0": Pathfinding,
    "polopt/PlannedPathfinding-v0": PlannedPathfinding,
}

for _id, _world in WORLDS.items():
    if _id not in gymnasium.registry:
        gymnasium.register(_id, vector_entry_point=f"{_world.__module__}:{_world.__name__}")
