"""Privilege rules: which tools may be called with which arguments; every other call is refused."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from polopt.guards.call_pattern import ANY_TOOL
from polopt.guards.conditions import Condition, all_hold, condition
from polopt.guards.guard import Fallback, Guard, GuardVerdict, ToolCall, strictest
from polopt.part import Part


class PrivilegeRule(Part):
    """Allows or forbids calls of a tool whose arguments meet conditions.

    tool: its name, or "*" for all. effect: allow or forbid a call that matches the rule. arguments: a condition by
    argument's name, see `condition`; all must hold, arguments that are not listed may be anything. priority: rules
    are tried from the lowest number up, and at one number forbidding ones first. fallback: of the calls that this rule
    forbids; None is the guard's. update: rules that hold once a call that this rule allows has run.

    Raises:
        ValueError: no tool, or a condition that is not supported.
    """

    tool: str
    effect: Literal["allow", "forbid"] = "allow"
    arguments: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    priority: int = 100
    fallback: Fallback | None = None
    update: Sequence[PrivilegeRule] = ()

    def setup(self) -> None:
        if not self.tool:
            raise ValueError("PrivilegeRule: tool must be the name of a tool, or '*', found ''")
        for name, schema in self.arguments.items():
            try:
                condition(schema)
            except ValueError as error:
                raise ValueError(f"PrivilegeRule of {self.tool:.60}, argument {name:.60}: {error}") from None

    def forward(self, call: ToolCall, missing: Literal["deny", "skip"] = "deny") -> bool:
        """Tests whether the rule matches the call. With an undecidable condition, or with missing="deny" an absent
        argument, an allowing rule does not match, and a forbidding rule does."""
        if self.tool not in (ANY_TOOL, call.name):
            return False
        absent = None if missing == "deny" else True
        given = call.arguments
        outcome = all_hold([each(given[n]) if n in given else absent for n, each in self._conditions.items()])
        return outcome is True if self.effect == "allow" else outcome is not False

    @functools.cached_property
    def _conditions(self) -> dict[str, Condition]:
        return {name: condition(schema) for name, schema in self.arguments.items()}


Table = tuple[PrivilegeRule, ...]


class PolicyUpdate(Part):
    """Computes the rules in force after a call whose rule has an `update`: tables -> tables. A call must be
    allowed by every table; the first applies to all calls, the others to those of the tools that they name. widens: an
    update may allow a call that was refused."""

    widens: ClassVar[bool] = False

    def forward(self, tables: tuple[Table, ...], update: Table) -> tuple[Table, ...]:
        raise NotImplementedError


class NarrowingUpdate(PolicyUpdate):
    """Adds the update to the rules in force, so that it never allows a call that was refused."""

    def forward(self, tables: tuple[Table, ...], update: Table) -> tuple[Table, ...]:
        return tables if update in tables else (*tables, update)


class ReplacingUpdate(PolicyUpdate):
    """Replaces the rules of the tools that the update names, so that it may allow a call that was refused."""

    widens = True

    def forward(self, tables: tuple[Table, ...], update: Table) -> tuple[Table, ...]:
        named = {rule.tool for rule in update}
        return ((*(rule for rule in tables[0] if rule.tool not in named), *update),)


class Privileges(Guard):
    """Allows a call that a rule allows and no rule before it forbids; every other call is refused, tools that no rule
    names included.

    rules: tried in the order of their priority. fallback: the consequence of a refusal: "message" returns an error to
    the model, "end" ends the episode, "ask" refuses the call without human approval. missing: whether an argument that
    a rule restricts and a call leaves out counts against the call ("deny") or is no restriction ("skip"). updates: the
    effect of rules' updates.

    Source: Shi et al. 2025, "Progent: Programmable Privilege Control for LLM Agents", arXiv 2504.11703.
    """

    rules: Sequence[PrivilegeRule] = ()
    fallback: Fallback = "message"
    missing: Literal["deny", "skip"] = "deny"
    updates: PolicyUpdate = NarrowingUpdate()

    @property
    def widens(self) -> bool:
        return self.updates.widens

    def forward(self, call: ToolCall, memory: Sequence[ToolCall] = ()) -> GuardVerdict:
        first, *others = self.tables(memory)
        return strictest([self._verdict(first, call), *(self._verdict(t, call) for t in others if names(t, call))])

    def tables(self, memory: Sequence[ToolCall]) -> tuple[Table, ...]:
        """Returns the rules in force after these calls have run."""
        tables: tuple[Table, ...] = (tuple(self.rules),)
        for call in memory:
            for table in tables:
                rule = self._decider(table, call)
                if rule is not None and rule.effect == "allow" and len(rule.update):
                    tables = self.updates(tables, tuple(rule.update))
        return tables

    def _decider(self, table: Table, call: ToolCall) -> PrivilegeRule | None:
        """Returns the first rule that matches."""
        ordered = sorted(table, key=lambda rule: (rule.priority, rule.effect == "allow"))
        return next((rule for rule in ordered if rule(call, self.missing)), None)

    def _verdict(self, table: Table, call: ToolCall) -> GuardVerdict:
        rule = self._decider(table, call)
        if rule is not None and rule.effect == "allow":
            return GuardVerdict(True)
        if rule is not None:
            return GuardVerdict(False, f"a rule forbids this call of {call.name:.60}", rule.fallback or self.fallback)
        if not names(table, call):
            return GuardVerdict(False, f"no rule allows the tool {call.name:.60}", self.fallback)
        return GuardVerdict(False, f"no rule allows {call.name:.60} with these arguments", self.fallback)


def names(table: Table, call: ToolCall) -> bool:
    """Tests whether some rule of the table applies to the call's tool."""
    return any(rule.tool in (ANY_TOOL, call.name) for rule in table)
