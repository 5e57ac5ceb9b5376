"""MiniGrid and BabyAI in words: missions on a grid, of which a policy is told what it sees."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from polopt.config import ConfigError
from polopt.worlds.gymnasium_games import GymnasiumEpisode, GymnasiumTasks
from polopt.worlds.protocol import Episode, Step, Task

KIND = "minigrid"
COMMANDS = ("left", "right", "forward", "pickup", "drop", "toggle", "done")
NOT_TOLD = ("unseen", "empty", "floor", "wall", "agent")


def minigrid(name: str = "minigrid") -> Any:
    """Returns the package, or a module of it.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ConfigError("worlds of kind minigrid need it; run pip install 'polopt[minigrid]'") from None


class MiniGridTasks(GymnasiumTasks):
    """Missions of an environment of MiniGrid or BabyAI. What is read is the mission, what is ahead, what is carried and
    what is in sight, by how far it is:

        go to the red ball; ahead: nothing; red ball 2 ahead 1 left

    An answer is a command: left, right, forward, pickup, drop, toggle or done. The reward is 1 for the mission, however
    long it took; the environment's own falls with the steps. Levels of BabyAI have demonstrations, by its bot.

    id, settings, turns, size, seed: as in `GymnasiumTasks`.
    """

    def __init__(
        self,
        *,
        id: str = "BabyAI-GoToRedBallNoDists-v0",
        settings: Mapping[str, Any] | None = None,
        turns: int = 20,
        size: int,
        seed: int = 0,
        heldout: bool = False,
    ) -> None:
        minigrid()  # registers its environments
        super().__init__(id=id, settings=settings, actions=COMMANDS, turns=turns, size=size, seed=seed, heldout=heldout)

    def make(self) -> Any:
        """Returns a new environment, whose module of levels prints nothing of what it draws anew."""
        minigrid("minigrid.envs.babyai.core.roomgrid_level").print = _silent
        return super().make()

    def episode(self, task: Task) -> Episode:
        return MiniGridEpisode(self, task)

    def words(self, observation: Any) -> str:
        return in_words(observation)


def _silent(*parts: object) -> None:
    """Prints nothing."""


def in_words(observation: Mapping[str, Any]) -> str:
    """Returns an observation in words: of its view [width, depth, 3] the agent is in the middle of the last row, and
    looks along the second index, which falls."""
    constants = minigrid("minigrid.core.constants")
    states = {number: name for name, number in constants.STATE_TO_IDX.items()}
    view = observation["image"]
    width, depth = view.shape[:2]
    middle, here = width // 2, depth - 1

    def named(cell: Sequence[int]) -> str:
        kind = constants.IDX_TO_OBJECT[int(cell[0])]
        colour = "" if kind in ("wall", "goal", "lava") else constants.IDX_TO_COLOR[int(cell[1])] + " "
        state = states[int(cell[2])] + " " if kind == "door" else ""
        return f"{state}{colour}{kind}"

    def kind(cell: Sequence[int]) -> str:
        return str(constants.IDX_TO_OBJECT[int(cell[0])])

    front = view[middle, here - 1]
    parts = [f"ahead: {'nothing' if kind(front) in ('empty', 'floor') else named(front)}"]
    if kind(view[middle, here]) not in NOT_TOLD:
        parts.append(f"carrying {named(view[middle, here])}")
    for row in reversed(range(depth)):
        for column in range(width):
            if kind(view[column, row]) in NOT_TOLD or (column, row) == (middle, here):
                continue
            side = column - middle
            places = [f"{here - row} ahead"] if row < here else []
            places += [f"{abs(side)} {'left' if side < 0 else 'right'}"] if side else []
            parts.append(f"{named(view[column, row])} {' '.join(places)}")
    return "; ".join([str(observation["mission"]), *parts])


class MiniGridEpisode(GymnasiumEpisode):
    """An episode of MiniGrid."""

    def __init__(self, world: GymnasiumTasks, task: Task) -> None:
        super().__init__(world, task)
        self.bot: Any = None
        self.since: list[int] = []  # actions since the bot was asked

    def reset(self) -> str:
        self.bot, self.since = None, []
        return super().reset()

    def step(self, action: str) -> Step:
        step = super().step(action)
        if (name := action.strip()) in COMMANDS:
            self.since.append(COMMANDS.index(name))
        done = step.terminated and step.reward > 0
        return step._replace(reward=float(done), info={**step.info, "solved": done})

    def demonstrate(self) -> str | None:
        """Returns the command of BabyAI's bot; None where the environment is no level of BabyAI. The bot goes on with
        its plan if its last command alone was taken, and plans anew else."""
        level = minigrid("minigrid.envs.babyai.core.roomgrid_level").RoomGridLevel
        if self.env is None or not isinstance(self.env.unwrapped, level):
            return None
        last = None
        if self.bot is None or len(self.since) != 1:
            self.bot = minigrid("minigrid.utils.baby_ai_bot").BabyAIBot(self.env.unwrapped)
        else:
            last = self.since[0]
        self.since = []
        return COMMANDS[int(self.bot.replan(last))]
