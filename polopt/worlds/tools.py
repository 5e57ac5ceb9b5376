"""Tool-use environments: Python callables with JSON arguments, over an episode of several turns."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from polopt.guards import ToolCall, ToolCallError
from polopt.worlds.episodes import Entry, environment
from polopt.worlds.protocol import Episode, EpisodeError, Step, Task, Tasks, TaskSplit
from polopt.worlds.wrapped import WrappedTasks

BLOCK = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
OPENING = "<tool_call>"
# The signal of the number of the first answer with a call.
FIRST_CALL = "first_call"
TOOL_SIGNALS = ("calls", FIRST_CALL, "malformed")


class ToolSession(Protocol):
    """The tools and the reward of one episode: a user-defined class, instantiated for each episode with its `Task`."""

    def tools(self) -> Mapping[str, Callable[..., Any]]:
        """Returns the tools by name.

        Tools take JSON values by name, may share state, and return text or JSON data; the message of a ValueError that
        a tool raises becomes part of the observation.
        """

    def score(self, answer: str) -> float:
        """Returns the reward of the whole episode, given the answer that ended it."""


def tool_calls(text: str) -> list[ToolCall]:
    """Parses the tool calls in a policy's answer.

    Each call is `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, or the whole answer where it is such JSON.
    An answer without calls is the final one.

    Raises:
        ToolCallError: a malformed call.
    """
    if OPENING in text:
        if len(BLOCK.findall(text)) != text.count(OPENING):
            raise ToolCallError(f"a tool call begins with {OPENING} and ends with </tool_call>")
        return [ToolCall.from_json(block) for block in BLOCK.findall(text)]
    if text.strip().startswith("{") and '"name"' in text:
        return [ToolCall.from_json(text)]
    return []


class ToolTasks(WrappedTasks):
    """Tasks whose episodes are `ToolEpisode`s; `tool_calls` parses the calls of an answer; the signal "calls" is their
    number in an episode so far, "first_call" the number of the first answer with one, -1 before, and "malformed" that
    of answers whose calls could not be read."""

    @property
    def signals(self) -> tuple[str, ...]:
        return (*super().signals, *TOOL_SIGNALS)

    def tool_calls(self, text: str) -> list[ToolCall]:
        return tool_calls(text)


class ToolEpisode:
    """An episode in which the observation after an answer with calls is their results; the first answer without calls
    is scored and ends it."""

    def __init__(self, session: ToolSession, task: Task) -> None:
        self.session, self.task, self._open = session, task, False
        self._calls, self._answers, self._first, self._malformed = 0, 0, -1.0, 0
        self.tools = dict(session.tools())

    def reset(self) -> str:
        self._open, self._calls, self._answers, self._first, self._malformed = True, 0, 0, -1.0, 0
        return self.task.prompt

    def step(self, action: str) -> Step:
        if not self._open:
            raise EpisodeError(f"task {self.task.id} is over or has not begun; call reset() first")
        self._answers += 1
        try:
            calls = tool_calls(action)
        except ToolCallError as error:
            self._malformed += 1
            return Step(f"error: {error}", 0.0, terminated=False, truncated=False, info=self._info(False))
        if calls and not self._calls:
            self._first = float(self._answers - 1)
        self._calls += len(calls)
        if calls:
            results = "\n".join(self._result(call) for call in calls)
            return Step(results, 0.0, terminated=False, truncated=False, info=self._info(False))
        return self._answered(action)

    def _answered(self, action: str) -> Step:
        """Returns the step of an answer without a call."""
        self._open = False
        reward = self.session.score(action)
        return Step("", reward, terminated=True, truncated=False, info=self._info(reward >= 1))

    def _info(self, solved: bool) -> dict[str, Any]:
        told = (float(self._calls), self._first, float(self._malformed))
        return {"solved": solved, "signals": dict(zip(TOOL_SIGNALS, told, strict=True))}

    def _result(self, call: ToolCall) -> str:
        """Returns the observation of a call: the tool's result, or the error of the call."""
        tool = self.tools.get(call.name)
        if tool is None:
            return f"error: there is no tool {call.name:.60}; there are {', '.join(self.tools)}"
        try:
            inspect.signature(tool).bind(**call.arguments)
        except TypeError as error:
            return f"error: {call.name}: {error}"
        try:
            result = tool(**call.arguments)
        except ValueError as error:
            return f"error: {call.name}: {error}"
        return result if isinstance(result, str) else json.dumps(result)

    def demonstrate(self) -> str | None:
        """Returns the action of the session's own `demonstrate()`, None if it has none."""
        own = getattr(self.session, "demonstrate", None)
        return own() if callable(own) else None


def tool_environment(
    session: Callable[[Task], ToolSession],
    *,
    train: Sequence[Entry],
    heldout: Sequence[Entry],
    turns: int = 8,
    texts: Sequence[str] = (),
) -> TaskSplit:
    """Builds the tasks of an environment whose policies call tools.

    session: a class or function that is called with a `Task` and returns a `ToolSession`.
    train, heldout, texts: as for `environment`.
    turns: the most answers of one episode. The tasks' prompts must list the available tools, see `described_tools`.

    Raises:
        ConfigError: as for `environment`.
    """

    def episode(task: Task) -> Episode:
        return ToolEpisode(session(task), task)

    split = environment(episode, train=train, heldout=heldout, turns=turns, texts=texts)
    return TaskSplit(ToolTasks(split.train), ToolTasks(split.heldout), texts)


def described_tools(tools: Mapping[str, Callable[..., Any]]) -> str:
    """Formats tools for a prompt, one a line: name and parameters, and the first line of the docstring."""
    lines = []
    for name, tool in tools.items():
        parameters = [str(p) for p in inspect.signature(tool).parameters.values()]
        about = (inspect.getdoc(tool) or "").partition("\n")[0]
        lines.append(f"{name}({', '.join(parameters)})" + (f": {about}" if about else ""))
    return "\n".join(lines)


def calls_tools(tasks: Tasks) -> bool:
    """Returns True if a guard can read these tasks' tool calls, that is, if they have `tool_calls(text)`."""
    return callable(getattr(tasks, "tool_calls", None))
