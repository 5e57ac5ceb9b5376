"""Guards: parts that decide which tool calls of a policy may run."""

from polopt.guards.analysis import (
    Narrowing,
    RuleAnalysis,
    RuleProblem,
    RuleProposer,
    analyse,
    narrower,
    narrowing,
    proposed,
)
from polopt.guards.call_pattern import CallPattern
from polopt.guards.conditions import condition
from polopt.guards.detector import (
    END,
    Detector,
    DetectorGuard,
    LabelledTrace,
    ViolationClassifier,
    fit_classifier,
    step_text,
)
from polopt.guards.exact import Answer, find_call
from polopt.guards.guard import AllowedByAll, Guard, GuardVerdict, ToolCall, ToolCallError
from polopt.guards.guarded import CallRefused, GuardedTools, approved, guarded
from polopt.guards.patterns import LinearPattern
from polopt.guards.privileges import NarrowingUpdate, PolicyUpdate, PrivilegeRule, Privileges, ReplacingUpdate
from polopt.guards.rules import privilege_rules, read_rules
from polopt.guards.temporal import RuleStatus, TemporalGuard, TemporalRule, read_temporal_rules, temporal_rules

__all__ = [
    "END",
    "AllowedByAll",
    "Answer",
    "CallPattern",
    "CallRefused",
    "Detector",
    "DetectorGuard",
    "Guard",
    "GuardVerdict",
    "GuardedTools",
    "LabelledTrace",
    "LinearPattern",
    "Narrowing",
    "NarrowingUpdate",
    "PolicyUpdate",
    "PrivilegeRule",
    "Privileges",
    "ReplacingUpdate",
    "RuleAnalysis",
    "RuleProblem",
    "RuleProposer",
    "RuleStatus",
    "TemporalGuard",
    "TemporalRule",
    "ToolCall",
    "ToolCallError",
    "ViolationClassifier",
    "analyse",
    "approved",
    "condition",
    "find_call",
    "fit_classifier",
    "guarded",
    "narrower",
    "narrowing",
    "privilege_rules",
    "proposed",
    "read_rules",
    "read_temporal_rules",
    "step_text",
    "temporal_rules",
]
