"""Patterns of tool calls: a tool's name and conditions on its arguments."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from polopt.guards.conditions import Condition, Outcome, all_hold, condition
from polopt.guards.guard import ToolCall
from polopt.part import Part

ANY_TOOL = "*"


class CallPattern(Part):
    """Matches calls of a tool whose arguments meet conditions.

    tool: its name, or "*" for all. arguments: a condition by argument's name, see `condition`; all must hold.

    Raises:
        ValueError: no tool, or a condition that is not supported.
    """

    tool: str
    arguments: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)

    def setup(self) -> None:
        if not self.tool:
            raise ValueError("CallPattern: tool must be the name of a tool, or '*', found ''")
        for name, schema in self.arguments.items():
            try:
                condition(schema)
            except ValueError as error:
                raise ValueError(f"CallPattern of {self.tool:.60}, argument {name:.60}: {error}") from None

    def forward(self, call: ToolCall) -> Outcome:
        """Tests whether the call matches; None where a condition is undecidable, or its argument is left out."""
        if self.tool not in (ANY_TOOL, call.name):
            return False
        given = call.arguments
        return all_hold([each(given[n]) if n in given else None for n, each in self._conditions.items()])

    @functools.cached_property
    def _conditions(self) -> dict[str, Condition]:
        return {name: condition(schema) for name, schema in self.arguments.items()}

    def text(self) -> str:
        """Returns the pattern in words: the tool, and its conditions."""
        return " ".join([self.tool, *(f"with {name} {schema}" for name, schema in self.arguments.items())])
