"""Worlds from plain data, as a recipe holds them: `{"kind": "reasoning-gym", "datasets": ...}`."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any, Literal, Self

import pydantic

from polopt.config import ConfigError, parse
from polopt.guards import Guard, Privileges, privilege_rules, read_rules
from polopt.guards.guard import Fallback
from polopt.names import nearest
from polopt.part import build
from polopt.part_names import locate
from polopt.worlds.acting_worlds import ACTING_WORLDS
from polopt.worlds.chains import Chains
from polopt.worlds.contract import check_split, own_code
from polopt.worlds.critic import Critic
from polopt.worlds.file_worlds import DatasetWorld, LabelledWorld, PairsWorld, RankedWorld
from polopt.worlds.guarded import GuardedTasks
from polopt.worlds.interpreter import Interpreter
from polopt.worlds.mcp_tools import MCPSpec, mcp_tools
from polopt.worlds.noisy import NoisyTasks
from polopt.worlds.planned import ACT_PROMPT, PLAN_PROMPT, PlannedTasks
from polopt.worlds.protocol import Tasks, TaskSplit
from polopt.worlds.reasoning_gym import ReasoningGym
from polopt.worlds.rulebook import Rulebook
from polopt.worlds.second_chance import SECOND_PROMPT, SecondChanceTasks
from polopt.worlds.subgoals import SUBGOAL_PROMPT, TAGS, SubgoalTasks
from polopt.worlds.texts import read_texts
from polopt.worlds.tool_use import Tool, ToolUse, calculator, python_tool
from polopt.worlds.unit_tests import UnitTests
from polopt.worlds.world import Count, World


class ReasoningGymWorld(World):
    """Tasks of reasoning_gym datasets; `datasets` maps names to settings, see `ReasoningGym`; `train` and `heldout` are
    numbers of tasks."""

    kind: Literal["reasoning-gym"] = "reasoning-gym"
    datasets: dict[str, dict[str, Any] | None]
    train: Count = 20_000
    heldout: Count = 400
    partial: bool = False
    answer_tag: str | None = None

    def build(self, seed: int) -> TaskSplit:
        return ReasoningGym.split(
            self.datasets,
            train=self.train,
            heldout=self.heldout,
            seed=seed,
            partial=self.partial,
            answer_tag=self.answer_tag,
        )

    def computing(self) -> str | None:
        return self.kind


class ChainsWorld(World):
    """Rearranging the letters of words, with or without written working, see `Chains`."""

    kind: Literal["chains"] = "chains"
    steps: tuple[int, int] = (1, 3)
    letters: int = 4
    worked: float = 0.5
    easy: int = 1
    train: Count = 20_000
    heldout: Count = 400

    def build(self, seed: int) -> TaskSplit:
        return Chains.split(
            self.steps,
            train=self.train,
            heldout=self.heldout,
            seed=seed,
            letters=self.letters,
            worked=self.worked,
            easy=self.easy,
        )


class CriticWorld(World):
    """Criticising worked solutions, see `Critic`."""

    kind: Literal["critic"] = "critic"
    steps: int = 4
    operations: str = "+-*"
    base: int = 10
    share: float = 0.5
    tries: Count = 8
    told: float = 0.9
    alone: float = 0.2
    leaks: Literal["masked", "read"] = "masked"
    train: Count = 20_000
    heldout: Count = 400

    def build(self, seed: int) -> TaskSplit:
        settings = {
            name: getattr(self, name)
            for name in ("steps", "operations", "base", "share", "tries", "told", "alone", "leaks")
        }
        try:
            return Critic.split(train=self.train, heldout=self.heldout, seed=seed, **settings)
        except ValueError as error:
            raise ConfigError(str(error)) from None


class UnitTestsWorld(World):
    """Writing unit tests of small functions, see `UnitTests`."""

    kind: Literal["unit-tests"] = "unit-tests"
    smelly: float = pydantic.Field(default=0.7, ge=0, le=1)
    train: Count = 5_000
    heldout: Count = 200

    def build(self, seed: int) -> TaskSplit:
        return UnitTests.split(train=self.train, heldout=self.heldout, seed=seed, smelly=self.smelly)


class RulebookWorld(World):
    """Questions whose answers are in a book of rules, see `Rulebook`. Its texts are the book itself."""

    kind: Literal["rulebook"] = "rulebook"
    book: str = "a42 b71 c19 d93"
    shown: bool = False
    train: Count = 2_000
    heldout: Count = 100

    def build(self, seed: int) -> TaskSplit:
        try:
            return Rulebook.split(self.book, shown=self.shown, train=self.train, heldout=self.heldout, seed=seed)
        except ValueError as error:
            raise ConfigError(str(error)) from None


class WrapperWorld(World):
    """A world that wraps another world, `of`."""

    of: dict[str, Any]

    @pydantic.model_validator(mode="after")
    def _of_a_world(self) -> Self:
        parse_world(self.of, "of")
        return self

    def computing(self) -> str | None:
        return parse_world(self.of).computing()


class NoisyWorld(WrapperWorld):
    """The world `of` with planted verifier errors in training, see `NoisyTasks`; the held-out tasks are scored without
    errors."""

    kind: Literal["noisy"] = "noisy"
    missed: float | dict[str, float] = 0.0
    fooled: float | dict[str, float] = 0.0

    def build(self, seed: int) -> TaskSplit:
        split = parse_world(self.of).split(seed)
        try:
            train = NoisyTasks(split.train, missed=self.missed, fooled=self.fooled, seed=seed)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        return dataclasses.replace(split, train=train)


class SecondChanceWorld(WrapperWorld):
    """The world `of` with a second attempt at every answer, see `SecondChanceTasks`."""

    kind: Literal["second-chance"] = "second-chance"
    ask: str = SECOND_PROMPT

    def build(self, seed: int) -> TaskSplit:
        split = parse_world(self.of).split(seed)
        try:
            both = [SecondChanceTasks(tasks, ask=self.ask) for tasks in (split.train, split.heldout)]
        except ValueError as error:
            raise ConfigError(str(error)) from None
        return dataclasses.replace(split, train=both[0], heldout=both[1])


class ToolUseWorld(WrapperWorld):
    """The world `of` with tools that may be called before the answer, see `ToolUse`.

    tools: calculator, python, functions of your own, as file.py:name, and {mcp: COMMAND}, all tools of an MCP server.
    calls: how many answers with calls an episode may have.
    seconds, memory, output, packages: limits of a Python program, see `Interpreter`.
    """

    kind: Literal["with-tools"] = "with-tools"
    tools: list[str | MCPSpec] = pydantic.Field(min_length=1)
    calls: Count = 3
    seconds: float = pydantic.Field(default=5.0, gt=0)
    memory: float = pydantic.Field(default=0.5, gt=0)
    output: Count = 4000
    packages: bool = False

    def build(self, seed: int) -> TaskSplit:
        split = parse_world(self.of).split(seed)
        tools: dict[str, Tool] = {}
        for named in self.tools:
            if isinstance(named, str):
                found: dict[str, Any] = {named.rpartition(":")[2]: self._tool(named)}
            else:
                found = dict(mcp_tools(named.mcp, named.seconds))
            if twice := sorted(tools.keys() & found.keys()):
                raise ConfigError(f"world.tools: two tools are called {twice[0]}; rename one of them")
            tools |= found
        both = [ToolUse(tasks, tools, calls=self.calls) for tasks in (split.train, split.heldout)]
        return dataclasses.replace(split, train=both[0], heldout=both[1])

    def _tool(self, name: str) -> Tool:
        if name == "python":
            limits = {key: getattr(self, key) for key in ("seconds", "memory", "output", "packages")}
            return python_tool(Interpreter(**limits))
        if name == "calculator":
            return calculator
        if ":" not in name:
            raise ConfigError(f"world.tools: {name!r} is none of calculator and python, and no file.py:name")
        found: Tool = locate(name)
        return found


class PlannedWorld(WrapperWorld):
    """The world `of` with a plan before its answers, see `PlannedTasks`, whose settings it has."""

    kind: Literal["with-plan"] = "with-plan"
    ask: str = PLAN_PROMPT
    then: str = ACT_PROMPT

    def build(self, seed: int) -> TaskSplit:
        split = parse_world(self.of).split(seed)
        train, heldout = (PlannedTasks(x, ask=self.ask, then=self.then) for x in (split.train, split.heldout))
        return dataclasses.replace(split, train=train, heldout=heldout)


class SubgoalWorld(WrapperWorld):
    """The world `of` with answers that name the subgoal of their action, as `SubgoalTasks` with its tags and ask."""

    kind: Literal["with-subgoals"] = "with-subgoals"
    tags: tuple[str, str, str] = TAGS
    ask: str = SUBGOAL_PROMPT

    def build(self, seed: int) -> TaskSplit:
        split = parse_world(self.of).split(seed)
        train, heldout = (SubgoalTasks(x, tags=self.tags, ask=self.ask) for x in (split.train, split.heldout))
        return dataclasses.replace(split, train=train, heldout=heldout)


class GuardedWorld(WrapperWorld):
    """The tool world `of` with calls that run only if privilege rules allow them, see `GuardedTasks`.

    rules: a YAML file of rules, or the rules.
    guard: any other guard, as {part: ...}, in the place of rules.
    fallback: what happens to a refused call if no rule has a fallback for it; there is no human approval.
    missing: whether a restricted argument that a call leaves out counts against it.
    penalty: subtracted from the reward for each refused call.
    """

    kind: Literal["guarded"] = "guarded"
    rules: str | list[dict[str, Any]] | None = None
    guard: dict[str, Any] | None = None
    fallback: Fallback = "message"
    missing: Literal["deny", "skip"] = "deny"
    penalty: float = pydantic.Field(default=0.0, ge=0)

    def check(self, where: str) -> None:
        self.build_guard(where)

    def build_guard(self, where: str) -> Guard:
        """Returns the guard.

        Raises:
            ConfigError: no rules and no guard, or both, malformed rules, or a part that is no guard.
        """
        if (self.rules is None) == (self.guard is None):
            raise ConfigError(f"{where} needs either rules, a file or a list, or a guard; give one of the two")
        if self.guard is None:
            read = (
                read_rules(self.rules) if isinstance(self.rules, str) else privilege_rules(self.rules, f"{where}.rules")
            )
            return Privileges(rules=read, fallback=self.fallback, missing=self.missing)
        with own_code(f"{where}.guard", ConfigError):
            found = build(self.guard)
        if not isinstance(found, Guard):
            raise ConfigError(f"{where}.guard must be a guard such as {{part: guards.Privileges}}, found {found!r:.60}")
        return found

    def build(self, seed: int) -> TaskSplit:
        split, guard = parse_world(self.of).split(seed), self.build_guard("world")
        try:
            both = [GuardedTasks(tasks, guard, penalty=self.penalty) for tasks in (split.train, split.heldout)]
        except ValueError as error:
            raise ConfigError(str(error)) from None
        return dataclasses.replace(split, train=both[0], heldout=both[1])


class OwnWorld(World):
    """A user-defined world, by name: a class or function that is called with the settings and `seed` and returns a
    `TaskSplit`."""

    kind: str
    settings: dict[str, Any]

    def build(self, seed: int) -> TaskSplit:
        make = locate(self.kind)
        with own_code(f"world.kind = {self.kind!r}", ConfigError):
            split = make(**self.settings, seed=seed)
        if not isinstance(split, TaskSplit):
            raise ConfigError(
                f"world.kind = {self.kind!r} must return a TaskSplit, found {type(split).__name__}; name a function "
                "that calls polopt.worlds.environment with the class and its tasks"
            )
        check_split(split, f"world.kind = {self.kind!r}")
        return split


KINDS: dict[str, type[World]] = {
    "reasoning-gym": ReasoningGymWorld,
    "dataset": DatasetWorld,
    "pairs": PairsWorld,
    "ranked": RankedWorld,
    "labelled": LabelledWorld,
    "chains": ChainsWorld,
    "critic": CriticWorld,
    "rulebook": RulebookWorld,
    "noisy": NoisyWorld,
    "second-chance": SecondChanceWorld,
    "guarded": GuardedWorld,
    "with-plan": PlannedWorld,
    "with-subgoals": SubgoalWorld,
    "with-tools": ToolUseWorld,
    "unit-tests": UnitTestsWorld,
    **ACTING_WORLDS,
}


def parse_world(spec: Mapping[str, Any], where: str = "world") -> World:
    """Validates a world's settings; generates no task and reads no data.

    Raises:
        ConfigError: an unknown kind or setting (with the nearest valid one), or a wrong value.
        ValueError: a user-defined world that does not exist.
    """
    if not isinstance(spec, Mapping) or not isinstance(spec.get("kind"), str):
        kinds = ", ".join(KINDS)
        raise ConfigError(f"{where}.kind is missing; give one of {kinds}, or file.py:Name for a world of your own")
    kind = spec["kind"]
    if ":" in kind:
        return _own(
            kind, {key: value for key, value in spec.items() if key not in ("kind", "texts", "seed")}, spec, where
        )
    if kind not in KINDS:
        raise ConfigError(f"{where}.kind = {kind!r} is not a world{nearest(kind, KINDS)}")
    world = parse(KINDS[kind], spec, where)
    world.check(where)
    return world


def _own(kind: str, settings: dict[str, Any], spec: Mapping[str, Any], where: str) -> OwnWorld:
    signature = inspect.signature(locate(kind))
    names = [name for name, p in signature.parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    for key in settings:
        if key not in names and not takes_any:
            raise ConfigError(f"{where}.{key} is not a setting of {kind}{nearest(key, set(names) - {'seed'})}")
    if "seed" not in names:
        raise ConfigError(f"{where}.kind = {kind!r:.100} is not a world: it must have a setting named seed")
    try:
        signature.bind(**settings, seed=0)
    except TypeError as error:
        raise ConfigError(f"{where}: {kind} is called with these settings and seed, but {error}") from None
    common = {key: spec[key] for key in ("texts", "seed") if key in spec}
    return parse(OwnWorld, {"kind": kind, "settings": settings, **common}, where)


def build_tasks(spec: Mapping[str, Any], *, seed: int) -> TaskSplit:
    """Builds the training and held-out tasks of the world that `spec` describes.

    Raises:
        ConfigError: as for `parse_world`, or the world cannot be built with these settings, or its texts cannot be
            read.
    """
    world = parse_world(spec)
    split = world.split(seed)
    return split if world.texts is None else dataclasses.replace(split, texts=read_texts(world.texts))


def rebuild_tasks(spec: Mapping[str, Any], seed: int, part: str) -> Tasks:
    """Rebuilds the tasks `train` or `heldout` of `build_tasks`, in another process."""
    tasks: Tasks = getattr(build_tasks(spec, seed=seed), part)
    return tasks
