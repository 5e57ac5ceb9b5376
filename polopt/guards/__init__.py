"""Guards: parts that decide which tool calls of a policy may run."""

from polopt.guards.conditions import condition
from polopt.guards.guard import AllowedByAll, Guard, GuardVerdict, ToolCall, ToolCallError
from polopt.guards.guarded import CallRefused, GuardedTools, approved, guarded
from polopt.guards.patterns import LinearPattern
from polopt.guards.privileges import NarrowingUpdate, PolicyUpdate, PrivilegeRule, Privileges, ReplacingUpdate
from polopt.guards.rules import privilege_rules, read_rules

__all__ = [
    "AllowedByAll",
    "CallRefused",
    "Guard",
    "GuardVerdict",
    "GuardedTools",
    "LinearPattern",
    "NarrowingUpdate",
    "PolicyUpdate",
    "PrivilegeRule",
    "Privileges",
    "ReplacingUpdate",
    "ToolCall",
    "ToolCallError",
    "approved",
    "condition",
    "guarded",
    "privilege_rules",
    "read_rules",
]
