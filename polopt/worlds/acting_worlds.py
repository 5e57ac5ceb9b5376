"""Worlds in which a policy acts, from plain data: games, shops, grids, search engines, screens, apps and adventures."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pydantic

from polopt.config import ConfigError
from polopt.part_names import locate
from polopt.worlds.apps import Apps
from polopt.worlds.guess import GuessNumber
from polopt.worlds.gymnasium_games import GymnasiumTasks
from polopt.worlds.minigrid_words import MiniGridTasks
from polopt.worlds.protocol import TaskSplit
from polopt.worlds.retrieval import Retrieval
from polopt.worlds.screens import Screens
from polopt.worlds.shop import Shop
from polopt.worlds.text_grid import TextGrid
from polopt.worlds.textworld_games import TextWorldGames
from polopt.worlds.world import Count, World

Threshold = Annotated[float, pydantic.Field(gt=0, le=100)]


class GuessNumberWorld(World):
    """Guessing numbers from `low` to `high` in at most `turns` turns, see `GuessNumber`."""

    kind: Literal["guess-number"] = "guess-number"
    low: int = 1
    high: int = 100
    turns: Count = 7
    train: Count = 2_000
    heldout: Count = 100

    def build(self, seed: int) -> TaskSplit:
        return GuessNumber.split(self.low, self.high, self.turns, train=self.train, heldout=self.heldout, seed=seed)


class ShopWorld(World):
    """Serving customers of a shop under written rules, by tools, see `Shop`; `thresholds` are least difficulties."""

    kind: Literal["shop"] = "shop"
    thresholds: tuple[Threshold, ...] = pydantic.Field((2, 4, 6, 8, 10), min_length=1)
    train: Count = 2_000
    heldout: Count = 100

    def build(self, seed: int) -> TaskSplit:
        return Shop.split(train=self.train, heldout=self.heldout, seed=seed, thresholds=self.thresholds)


class TextGridWorld(World):
    """Fetching things from a grid, by commands in words, see `TextGrid`."""

    kind: Literal["text-grid"] = "text-grid"
    width: int = 5
    things: int = 2
    walls: float = 0.2
    turns: Count = 60
    train: Count = 2_000
    heldout: Count = 100

    def build(self, seed: int) -> TaskSplit:
        settings = {name: getattr(self, name) for name in ("width", "things", "walls", "turns", "train", "heldout")}
        try:
            return TextGrid.split(seed=seed, **settings)
        except ValueError as error:
            raise ConfigError(str(error)) from None


class RetrievalWorld(World):
    """Answering questions on fictional facts with a search engine, see `Retrieval`; `relevance` is a function of the
    results and the answer, as file.py:Name."""

    kind: Literal["retrieval"] = "retrieval"
    hops: tuple[int, int] = (1, 2)
    turns: Count = 6
    results: Count = 2
    graphs: Count = 200
    people: int = 40
    judge: bool = False
    relevance: str | None = None
    threshold: float = 0.7
    train: Count = 20_000
    heldout: Count = 400

    def build(self, seed: int) -> TaskSplit:
        names = ("hops", "turns", "results", "graphs", "people", "judge", "threshold", "train", "heldout")
        settings: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self.relevance is not None:
            settings["relevance"] = locate(self.relevance)
        try:
            return Retrieval.split(seed=seed, **settings)
        except ValueError as error:
            raise ConfigError(str(error)) from None


class ScreensWorld(World):
    """One action on a screen of buttons, fields and lists, told in words, see `Screens`."""

    kind: Literal["screens"] = "screens"
    widgets: int = 4
    train: Count = 20_000
    heldout: Count = 400

    def build(self, seed: int) -> TaskSplit:
        try:
            return Screens.split(train=self.train, heldout=self.heldout, seed=seed, widgets=self.widgets)
        except ValueError as error:
            raise ConfigError(str(error)) from None


class AppsWorld(World):
    """Goals in an app of nested menus, told in words, with a way back from wrong screens, see `Apps`."""

    kind: Literal["apps"] = "apps"
    depth: int = 3
    buttons: int = 3
    turns: Count = 6
    midway: float = 0.0
    lost: float = 0.0
    single: bool = False
    train: Count = 20_000
    heldout: Count = 400

    def build(self, seed: int) -> TaskSplit:
        settings = {name: getattr(self, name) for name in ("depth", "buttons", "turns", "midway", "lost", "single")}
        try:
            return Apps.split(train=self.train, heldout=self.heldout, seed=seed, **settings)
        except ValueError as error:
            raise ConfigError(str(error)) from None


class TextWorldWorld(World):
    """Finishing quests in text adventures that TextWorld makes on this machine, see `TextWorldGames`."""

    kind: Literal["textworld"] = "textworld"
    quest: tuple[int, int] = (1, 3)
    rooms: tuple[int, int] = (2, 3)
    objects: tuple[int, int] = (2, 4)
    turns: Count = 10
    instructions: Literal["last", "all"] = "last"
    commands: bool = True
    theme: Literal["house", "basic"] = "house"
    folder: str | None = None
    train: Count = 200
    heldout: Count = 40

    def build(self, seed: int) -> TaskSplit:
        names = ("quest", "rooms", "objects", "turns", "instructions", "commands", "theme", "folder")
        settings: dict[str, Any] = {name: getattr(self, name) for name in names}
        try:
            return TextWorldGames.split(train=self.train, heldout=self.heldout, seed=seed, **settings)
        except ValueError as error:
            raise ConfigError(str(error)) from None


class GymnasiumWorld(World):
    """Episodes of an environment of gymnasium whose actions are texts or a few choices, see `GymnasiumTasks`."""

    kind: Literal["gymnasium"] = "gymnasium"
    id: str
    settings: dict[str, Any] = pydantic.Field(default_factory=dict)
    actions: tuple[str, ...] | None = None
    describe: str | None = None
    ask: str = ""
    digits: int = 2
    solved: float = 1.0
    turns: Count = 20
    train: Count = 2_000
    heldout: Count = 100

    def build(self, seed: int) -> TaskSplit:
        names = ("id", "settings", "actions", "describe", "ask", "digits", "solved", "turns")
        settings = {name: getattr(self, name) for name in names}
        try:
            return GymnasiumTasks.split(train=self.train, heldout=self.heldout, seed=seed, **settings)
        except ValueError as error:
            raise ConfigError(str(error)) from None


class MiniGridWorld(World):
    """Missions of MiniGrid and BabyAI, told in words, see `MiniGridTasks`."""

    kind: Literal["minigrid"] = "minigrid"
    id: str = "BabyAI-GoToRedBallNoDists-v0"
    settings: dict[str, Any] = pydantic.Field(default_factory=dict)
    turns: Count = 20
    train: Count = 2_000
    heldout: Count = 100

    def build(self, seed: int) -> TaskSplit:
        settings = {name: getattr(self, name) for name in ("id", "settings", "turns")}
        return MiniGridTasks.split(train=self.train, heldout=self.heldout, seed=seed, **settings)


ACTING_WORLDS: dict[str, type[World]] = {
    "guess-number": GuessNumberWorld,
    "shop": ShopWorld,
    "text-grid": TextGridWorld,
    "retrieval": RetrievalWorld,
    "screens": ScreensWorld,
    "apps": AppsWorld,
    "textworld": TextWorldWorld,
    "gymnasium": GymnasiumWorld,
    "minigrid": MiniGridWorld,
}
