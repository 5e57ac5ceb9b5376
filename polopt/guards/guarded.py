"""Guarded tools: callables that check each call before it runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from polopt.errors import UserError
from polopt.guards.guard import Guard, GuardVerdict, ToolCall

ApprovalCallback = Callable[[ToolCall, str], bool]


class CallRefused(UserError, RuntimeError):
    """A guard refused a tool call, which did not run. `call` and `verdict` hold the call and the reason; where
    `verdict.fallback` is "end", the agent must be stopped."""

    def __init__(self, call: ToolCall, verdict: GuardVerdict) -> None:
        super().__init__(f"the call of {call.name:.60} was refused: {verdict.reason}")
        self.call, self.verdict = call, verdict


class GuardedTools(Mapping[str, Callable[..., Any]]):
    """Tools by name, each of which takes its arguments by name and runs only if the guard allows the call.

    memory: the calls that have run. refused: those that have not, with their verdicts. After a refusal with the
    fallback "end" every call is refused.
    """

    def __init__(
        self, tools: Mapping[str, Callable[..., Any]], guard: Guard, ask: ApprovalCallback | None = None
    ) -> None:
        self._tools, self.guard, self.ask = dict(tools), guard, ask
        self.memory: list[ToolCall] = []
        self.refused: list[tuple[ToolCall, GuardVerdict]] = []

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return functools.wraps(self._tools[name])(functools.partial(self.call, name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def call(self, tool: str, /, **arguments: Any) -> Any:
        """Runs a tool on a copy of the arguments, and records the call; a call that raises counts as run.

        Raises:
            CallRefused: the guard refused the call.
            ToolCallError: the arguments are not JSON data.
        """
        call = ToolCall(tool, arguments)
        verdict = self._verdict(call)
        if not verdict.allow:
            self.refused.append((call, verdict))
            raise CallRefused(call, verdict)
        self.memory.append(call)
        return self._tools[tool](**call.arguments)

    def _verdict(self, call: ToolCall) -> GuardVerdict:
        if any(verdict.fallback == "end" for _, verdict in self.refused):
            return GuardVerdict(False, "an earlier refusal ended the episode", "end")
        verdict: GuardVerdict = self.guard(call, tuple(self.memory))
        return approved(call, verdict, self.ask)


def approved(call: ToolCall, verdict: GuardVerdict, ask: ApprovalCallback | None) -> GuardVerdict:
    """Returns the verdict after human approval if the guard's fallback is "ask"; without `ask`, a refusal stands."""
    if not verdict.allow and verdict.fallback == "ask" and ask is not None and ask(call, verdict.reason) is True:
        return GuardVerdict(True)
    return verdict


def guarded(tools: Mapping[str, Callable[..., Any]], guard: Guard, ask: ApprovalCallback | None = None) -> GuardedTools:
    """Wraps tools with a guard, for any agent.

    ask: a callback, called with a call and the reason where the guard's fallback is "ask"; only True lets the call run.
    """
    return GuardedTools(tools, guard, ask)
