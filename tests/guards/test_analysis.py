"""Static analysis of privilege rules against every call of a finite set."""

from __future__ import annotations

import itertools
import random

import pytest

from polopt.config import ConfigError
from polopt.guards import PrivilegeRule, Privileges, ToolCall, analyse, narrower, privilege_rules, proposed
from polopt.guards.analysis import covers, implies
from polopt.guards.conditions import condition

VALUES = (-1, 0, 1, 2, 3, "a", "ab", [], [1], None, True, 0.5)
SCHEMAS = (
    *({"minimum": 1}, {"exclusiveMinimum": 1}, {"maximum": 2}, {"minimum": 1, "maximum": 2}, {"type": "integer"}),
    *({"enum": [1, 2]}, {"enum": [1, "a"]}, {"const": 2}, {"minLength": 2}, {"maxLength": 1}, {"type": "number"}),
    *(
        {"pattern": "a"},
        {"not": {"const": 1}},
        {"anyOf": [{"const": 1}, {"minimum": 1}]},
        {"items": {"minimum": 1}},
        {},
    ),
    {"exclusiveMaximum": 2},
)
CALLS = [ToolCall(tool, {} if x == "none" else {"x": x}) for tool in "ab" for x in ("none", *VALUES)]


def test_an_implication_holds_of_every_value() -> None:
    implied = 0
    for narrow, wide in itertools.product(SCHEMAS, repeat=2):
        if implies(narrow, wide):
            implied += 1
            own, other = condition(narrow), condition(wide)
            assert all(other(x) is True for x in VALUES if own(x) is True), (narrow, wide)
    assert implied > len(SCHEMAS) + 15
    assert implies({"minimum": 3}, {"exclusiveMinimum": 2})
    assert not implies({"minimum": 2}, {"exclusiveMinimum": 2})
    assert implies({"enum": [1, 2]}, {"minimum": 1})


def rule(draw: random.Random) -> PrivilegeRule:
    arguments = {"x": draw.choice(SCHEMAS)} if draw.random() < 0.8 else {}
    tool, effect, priority = draw.choice("aab*"), draw.choice(["allow", "forbid"]), draw.randrange(2)
    return PrivilegeRule(tool=tool, effect=effect, arguments=arguments, priority=priority)


def test_findings_are_true_of_every_call() -> None:
    """A rule that is called unreachable changes no verdict when it is dropped; an overlap is one."""
    kinds: dict[str, int] = {}
    for seed in range(400):
        rules = [rule(random.Random(f"{seed}/{i}")) for i in range(3)]
        for kind, i, sentence, _ in analyse(rules, use_z3=False).problems:
            kinds[kind] = kinds.get(kind, 0) + 1
            assert f"rule {i} " in sentence
            if kind == "unreachable":
                rest = [r for j, r in enumerate(rules) if j != i]
                same = [Privileges(rules=rules)(c).allow == Privileges(rules=rest)(c).allow for c in CALLS]
                assert all(same), (rules, i)
    assert kinds["unreachable"] > 50
    assert kinds["overlap"] > 50


def test_covered_calls_are_matched() -> None:
    found = 0
    for seed in range(1500):
        first, second = (rule(random.Random(f"{seed}/{i}")) for i in range(2))
        if covers(first, second):
            found += 1
            calls = [c for c in CALLS if second(c)]
            assert all(first(c) for c in calls if first.tool == "*" or c.name == first.tool), (first, second)
    assert found > 100


def test_narrower_rules_open_nothing() -> None:
    accepted = refused = 0
    for seed in range(600):
        old, new = ([rule(random.Random(f"{seed}/{side}/{i}")) for i in range(2)] for side in "on")
        opened = any(Privileges(rules=new)(c).allow and not Privileges(rules=old)(c).allow for c in CALLS)
        accepted += narrower(new, old, use_z3=False)
        refused += opened
        assert not (narrower(new, old, use_z3=False) and opened), (old, new)
    assert accepted > 20
    assert refused > 50


TOOLS = {"send": {"properties": {"to": {"type": "string"}, "amount": {"type": "number"}}}}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"tool": "sent"}, "the tool 'sent', which does not exist; did you mean 'send'"),
        ({"tool": "send", "arguments": {"too": {}}}, "argument too: the tool has no such argument; did you mean 'to'"),
        ({"tool": "send", "arguments": {"to": {"maximum": 3}}}, "maximum never holds for the declared type string"),
        ({"tool": "send", "arguments": {"amount": {"enum": [1, "2"]}}}, "enum has '2', which is not of the declared"),
        ({"tool": "send", "arguments": {"amount": {"not": {"pattern": "a"}}}}, "pattern never holds for the declared"),
        ({"tool": "send", "arguments": {"amount": {"type": "string"}}}, "type is string, the declared type number"),
    ],
)
def test_types(data, sentence) -> None:
    (problem,) = analyse(privilege_rules([data]), TOOLS, use_z3=False).problems
    assert problem.kind == "type"
    assert sentence in problem.sentence
    assert (
        analyse(privilege_rules([{"tool": "send", "arguments": {"amount": {"type": "integer"}}}]), TOOLS).problems == []
    )


def test_a_proposal_only_narrows() -> None:
    asked = []

    def propose(tools, query):
        asked.append((tools, query))
        return [{"tool": "*"}] if query == "all" else [{"tool": "a", "arguments": {"x": {"const": 1}}}]

    guard = Privileges(rules=[PrivilegeRule(tool="a", arguments={"x": {"type": "integer"}})])
    for query, allowed in (("all", [-1, 0, 1, 2, 3]), ("one", [1])):
        both = proposed(guard, propose, TOOLS, query)
        assert [c.arguments["x"] for c in CALLS if both(c).allow] == allowed
    assert asked[0] == (TOOLS, "all")
    with pytest.raises(ConfigError, match="proposed rules must be a list"):
        proposed(guard, lambda tools, query: "allow all", TOOLS, "")
