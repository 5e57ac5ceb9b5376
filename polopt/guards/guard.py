"""The interface of guards: parts that allow or refuse each tool call before it runs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from polopt.errors import UserError
from polopt.part import Part

# The consequence of a refusal, the strictest last: human approval, a message to the model, the end of the episode.
Fallback = Literal["ask", "message", "end"]
STRICTNESS: tuple[Fallback, ...] = ("ask", "message", "end")


class ToolCallError(UserError, ValueError):
    """A tool call is malformed: its arguments are not JSON, or hold one name twice."""


@dataclasses.dataclass(frozen=True)
class ToolCall:
    """A call of a tool. arguments: JSON data by name, copied when the call is made, so that the checked arguments are
    those that run.

    Raises:
        ToolCallError: arguments that are not JSON data.
    """

    name: str
    arguments: Mapping[str, Any]

    def __post_init__(self) -> None:
        try:
            text = json.dumps(dict(self.arguments), allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise ToolCallError(f"the arguments of {self.name:.60} are not JSON: {error}") from None
        object.__setattr__(self, "arguments", json.loads(text))

    @classmethod
    def from_json(cls, text: str) -> ToolCall:
        """Parses a call written as `{"name": "send", "arguments": {"to": "bob"}}`.

        Raises:
            ToolCallError: another format, or one key twice, of which JSON readers may take either.
        """
        try:
            found = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise ToolCallError(f"a tool call must be JSON: {error}") from None
        named = isinstance(found, dict) and isinstance(found.get("name"), str)
        if not named or not isinstance(found.get("arguments", {}), dict) or found.keys() - {"name", "arguments"}:
            raise ToolCallError(
                f'a tool call must be {{"name": ..., "arguments": {{...}}}}, found {text.strip()!r:.80}'
            )
        return cls(found["name"], found.get("arguments", {}))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands there twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


class GuardVerdict(NamedTuple):
    """The decision whether a call may run; if not, the reason, and the consequence."""

    allow: bool
    reason: str = ""
    fallback: Fallback = "message"


class Guard(Part):
    """`guard(call, memory)` returns a `GuardVerdict`. memory: the calls that have run before, in order. A guard keeps
    no state: the same call after the same calls gets the same verdict. widens: a call that runs may open what
    was refused before it."""

    method_kind: ClassVar[str | None] = "guard"

    @property
    def widens(self) -> bool:
        return any(part.widens for part in self.parts() if part is not self and isinstance(part, Guard))

    def forward(self, call: ToolCall, memory: Sequence[ToolCall] = ()) -> GuardVerdict:
        raise NotImplementedError


class AllowedByAll(Guard):
    """Allows a call that each of its guards allows: an additional guard never allows a call that was refused.

    The strictest fallback among the refusals applies. guards: evaluated in order.
    """

    guards: Sequence[Guard]

    def forward(self, call: ToolCall, memory: Sequence[ToolCall] = ()) -> GuardVerdict:
        return strictest([guard(call, memory) for guard in self.guards])


def strictest(verdicts: Sequence[GuardVerdict]) -> GuardVerdict:
    """Returns the refusal with the strictest fallback; an allowance if none refuses, a refusal if there are none."""
    refused = [verdict for verdict in verdicts if not verdict.allow]
    if refused:
        return max(refused, key=lambda verdict: STRICTNESS.index(verdict.fallback))
    return GuardVerdict(True) if verdicts else GuardVerdict(False, "nothing allows it", "message")
