"""Collects what `polopt check` finds of a guard, on calls at the bounds of its own conditions."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Sequence
from typing import Any

from polopt.checks.finding import CheckResult
from polopt.checks.guard_rules import OF_CALLS, OF_THE_GUARD, GuardRow
from polopt.guards import CallPattern, Guard, PrivilegeRule, Privileges, ToolCall
from polopt.guards.analysis import analyse, examples
from polopt.guards.call_pattern import ANY_TOOL
from polopt.guards.exact import z3_installed

# Calls of one check; its time grows with the cube of their number.
CALLS = 24
LEFT_OUT = object()


def guard_findings(guard: Guard) -> list[CheckResult]:
    """Returns what holds of a guard, and what breaks. Whether a verdict is the intended one is not checked: the rules
    themselves say what is intended. Calls are made from privilege rules and temporal ones; a guard without any is
    checked by what it makes of an unknown tool, and as a part."""
    rules = [part for part in guard.parts() if isinstance(part, (PrivilegeRule, CallPattern))]
    allows_all = Privileges(rules=[PrivilegeRule(tool=ANY_TOOL)])
    row = GuardRow(guard, calls_of(rules), update=allows_all, widens=guard.widens)
    found = []
    for rule in (*(OF_CALLS if rules else ()), *OF_THE_GUARD):
        # A new guard for each rule: what a guard wrongly remembers must not have been worn out by the rule before.
        failure = rule.failure(dataclasses.replace(row, part=guard.but()))  # type: ignore[arg-type]
        sentence = "" if failure is None else failure.sentence
        found.append(CheckResult(rule.title, "holds" if failure is None else "breaks", sentence, rule.why))
    return [*found, *rule_findings(guard)]


def rule_findings(guard: Guard) -> list[CheckResult]:
    """Returns the results of the static analysis of each table of privilege rules: a rule that never decides breaks, an
    overlap is a choice."""
    tables = [part for part in guard.parts() if isinstance(part, Privileges)]
    analyses = [analyse(list(table.rules), missing=table.missing) for table in tables]
    problems = [problem for analysis in analyses for problem in analysis.problems]
    why = "A rule that never decides, or is overruled by another, is seldom what was meant. " + (
        "Decided by z3." if z3_installed() else "A conservative test, which may miss some; z3-solver decides all."
    )
    if not problems:
        return [CheckResult("rules", "holds", "", why)] if tables else []
    return [
        CheckResult(problem.kind, "choice" if problem.kind == "overlap" else "breaks", problem.sentence, why)
        for problem in problems
    ]


def calls_of(rules: Sequence[PrivilegeRule | CallPattern]) -> list[ToolCall]:
    """Returns calls of every tool that the rules name, and of another one, with arguments at the bounds of their
    conditions, beside them, and left out; at most `CALLS` of them, drawn evenly."""
    values: dict[str, list[Any]] = {}
    for rule in rules:
        for name, schema in rule.arguments.items():
            known = values.setdefault(name, [LEFT_OUT])
            known += [value for value in examples(schema) if not any(repr(value) == repr(old) for old in known)]
    tools = [*dict.fromkeys(rule.tool for rule in rules if rule.tool != ANY_TOOL), "another tool"]
    found = [
        ToolCall(tool, {name: value for name, value in zip(values, chosen, strict=True) if value is not LEFT_OUT})
        for tool, chosen in itertools.product(tools, itertools.islice(itertools.product(*values.values()), 10_000))
    ]
    return random.Random(0).sample(found, CALLS) if len(found) > CALLS else found
