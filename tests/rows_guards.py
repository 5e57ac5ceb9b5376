"""Rows of the battery: guards, over all calls of two tools with two arguments of a few values."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from polopt.checks.guard_rules import GuardRow
from polopt.guards import (
    AllowedByAll,
    CallPattern,
    DetectorGuard,
    Guard,
    NarrowingUpdate,
    PrivilegeRule,
    Privileges,
    ReplacingUpdate,
    TemporalGuard,
    TemporalRule,
    ToolCall,
    ViolationClassifier,
)

VALUES: tuple[Any, ...] = ("bob", "eve", 5, 500)
CALLS = [
    ToolCall(tool, {name: value for name, value in (("to", to), ("amount", amount)) if value is not None})
    for tool, to, amount in itertools.product(("send", "read"), ("bob", "eve", None), (5, 500, "500", None))
]
SMALL = {"amount": {"maximum": 100}}


def plain(call: ToolCall, memory: Sequence[ToolCall]) -> bool:
    """What the rules of `RULES` say, written out."""
    to, amount = call.arguments.get("to"), call.arguments.get("amount")
    if call.name == "read":
        return True
    if not isinstance(amount, int) or amount > 100:
        return False
    return to == "bob" or (to == "eve" and not any(past.name == "read" for past in memory))


# Nobody gets more than 100; bob may have the rest, eve only as long as nothing was read.
NOT_EVE = [PrivilegeRule(tool="send", arguments={"to": {"enum": ["bob"]}})]
RULES = [
    PrivilegeRule(tool="send", effect="forbid", arguments={"amount": {"minimum": 101}}, priority=1),
    PrivilegeRule(tool="send", arguments={"to": {"pattern": "bob|eve"}, "amount": {"type": "integer"}}),
    PrivilegeRule(tool="read", update=NOT_EVE),
]
EVERYTHING = Privileges(rules=[PrivilegeRule(tool="*")])


def row(part: Guard, **changes: Any) -> GuardRow:
    return GuardRow(part, **{"calls": CALLS, "reference": plain, "update": EVERYTHING, **changes})


def in_order(call: ToolCall, memory: Sequence[ToolCall]) -> bool:
    """What the rules of `ORDER` say, written out: never above 100 or an unknown amount; read before anything is sent to
    eve, or to nobody in particular."""
    to, amount = call.arguments.get("to"), call.arguments.get("amount")
    if call.name == "read":
        return True
    if not isinstance(amount, int) or amount > 100:
        return False
    return to == "bob" or any(past.name == "read" for past in memory)


ORDER = [
    TemporalRule(kind="prohibition", event=CallPattern(tool="send", arguments={"amount": {"exclusiveMinimum": 100}})),
    TemporalRule(
        kind="ordering",
        event=CallPattern(tool="read"),
        other=CallPattern(tool="send", arguments={"to": {"const": "eve"}}),
    ),
    TemporalRule(kind="conditional", event=CallPattern(tool="read"), other=CallPattern(tool="send")),
]

GUARDS = {
    "privileges": row(Privileges(rules=RULES, updates=NarrowingUpdate())),
    "replacing": row(
        Privileges(
            rules=[
                PrivilegeRule(tool="read", update=[PrivilegeRule(tool="send", arguments=SMALL)]),
            ],
            updates=ReplacingUpdate(),
            missing="skip",
        ),
        reference=lambda call, memory: (
            call.name == "read" or (any(m.name == "read" for m in memory) and call.arguments.get("amount", 0) in (0, 5))
        ),
        widens=True,
    ),
    "all": row(
        AllowedByAll(guards=[EVERYTHING, Privileges(rules=RULES, fallback="end")]),
        update=Privileges(rules=[PrivilegeRule(tool="send", arguments=SMALL)]),
    ),
    "temporal": row(
        TemporalGuard(rules=ORDER, tools=("send", "read"), fallback="ask"), reference=in_order, widens=True
    ),
    # Without weights from training: every probability is near a half.
    "detector": row(
        DetectorGuard(
            policies=("never send",), detector=ViolationClassifier(words=("never",)), threshold=1e-6, tools=("send",)
        ),
        reference=lambda call, memory: False,
        widens=True,
    ),
    "nothing": row(Privileges(), reference=lambda call, memory: False),
}
