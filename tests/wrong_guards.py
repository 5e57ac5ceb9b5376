"""Guards with one deliberate mistake each. The battery must reject every one of them."""

from __future__ import annotations

from collections.abc import Sequence

from rows_guards import RULES

from polopt.guards import Guard, GuardVerdict, PrivilegeRule, Privileges, ReplacingUpdate, ToolCall


class Right(Privileges):
    """A right one, to be made wrong."""

    rules: Sequence[PrivilegeRule] = tuple(RULES)


class TextIsANumber(Right):
    """Lets a number pass that is written as text."""

    def forward(self, call: ToolCall, memory: Sequence[ToolCall] = ()) -> GuardVerdict:
        verdict = super().forward(call, memory)
        return GuardVerdict(True) if isinstance(call.arguments.get("amount"), str) else verdict


class Forgiving(Right):
    """Forbids reading once money was sent, and lets everything pass once something was read."""

    def forward(self, call: ToolCall, memory: Sequence[ToolCall] = ()) -> GuardVerdict:
        if any(past.name == "read" for past in memory):
            return GuardVerdict(True)
        return super().forward(call, memory)


class Counting(Right):
    """Lets a call pass that was refused five times."""

    def setup(self) -> None:
        self.count = 0

    def forward(self, call: ToolCall, memory: Sequence[ToolCall] = ()) -> GuardVerdict:
        verdict = super().forward(call, memory)
        self.count += not verdict.allow
        return GuardVerdict(True) if self.count > 5 else verdict


class DefaultAllow(Guard):
    """Refuses what it knows."""

    def forward(self, call: ToolCall, memory: Sequence[ToolCall] = ()) -> GuardVerdict:
        return GuardVerdict(call.name != "send", "money is not sent")


class Silent(Right):
    """Does not say why."""

    def forward(self, call: ToolCall, memory: Sequence[ToolCall] = ()) -> GuardVerdict:
        return super().forward(call, memory)._replace(reason="")


class RestlessGuard(Guard):
    """Changes its own setting."""

    value: float = 1.0

    def setup(self) -> None:
        self.value *= 2


class MisprintedGuard(Guard):
    """Prints as something else."""

    def __repr__(self) -> str:
        return "guards.Privileges()"


WIDENING = Privileges(
    rules=[PrivilegeRule(tool="read", update=[PrivilegeRule(tool="send")])], updates=ReplacingUpdate()
)
