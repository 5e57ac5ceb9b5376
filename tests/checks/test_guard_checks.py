"""The checks of guards hold for the guards that there are, and find what was planted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from rows_guards import GUARDS, RULES
from wrong_guards import Counting, DefaultAllow, Forgiving, Silent

import polopt as po
from polopt.catalogue import part
from polopt.checks import check
from polopt.checks.guard_checks import CALLS, LEFT_OUT, calls_of, examples
from polopt.guards import CallPattern, Guard, GuardVerdict, PrivilegeRule, Privileges, ToolCall

# Rules of each published guard, and the checks beyond those of all guards.
RULES_OF = {
    "progent": ([{"tool": "send", "arguments": {"amount": {"maximum": 100}}}, {"tool": "read"}], ("rules",)),
    "policyguard": ([{"kind": "prohibition", "event": "delete"}], ()),
}
TITLES = ("narrowing", "no state", "refusals", "YAML", "print")


def verdicts(guard: Guard) -> dict[str, str]:
    (report,) = check(guard, "it")
    assert report.kind == "guard"
    return {finding.title: finding.verdict for finding in report.findings}


@pytest.mark.parametrize("name", GUARDS)
def test_every_guard_holds(name: str) -> None:
    guard = GUARDS[name].part
    has_rules = any(isinstance(part, (PrivilegeRule, CallPattern)) for part in guard.parts())
    found = verdicts(guard)
    analysed = {title: found.pop(title) for title in ("rules", "overlap") if title in found}
    assert found == dict.fromkeys(TITLES if has_rules else TITLES[2:], "holds")
    tables = any(isinstance(part, Privileges) for part in guard.parts())
    assert analysed in ([{"rules": "holds"}, {"overlap": "choice"}] if tables else [{}])


@pytest.mark.parametrize("slug", po.slugs("guard"))
def test_every_published_guard_holds(slug: str) -> None:
    rules, more = RULES_OF[slug]
    assert verdicts(part(slug, rules=rules)) == dict.fromkeys((*TITLES, *more), "holds")


def test_without_rules_there_are_no_calls_to_compare() -> None:
    assert verdicts(Privileges()) == dict.fromkeys(("refusals", "YAML", "print", "rules"), "holds")


class Generous(Privileges):
    """Lets send exactly one more than the rules allow, once something was read."""

    rules: Sequence[PrivilegeRule] = (
        PrivilegeRule(tool="send", arguments={"amount": {"maximum": 100}}),
        PrivilegeRule(tool="read"),
    )

    def forward(self, call: ToolCall, memory: Sequence[ToolCall] = ()) -> GuardVerdict:
        if call.arguments.get("amount") == 101 and any(past.name == "read" for past in memory):
            return GuardVerdict(True)
        return super().forward(call, memory)


@pytest.mark.parametrize(
    ("guard", "broken"),
    [
        (Forgiving(), {"narrowing"}),
        (Counting(), {"no state", "refusals"}),
        (DefaultAllow(), {"refusals"}),
        (Silent(), {"refusals"}),
        (Generous(), {"narrowing"}),
    ],
    ids=lambda x: type(x).__name__,
)
def test_what_was_planted_is_found(guard: Guard, broken: set[str]) -> None:
    found = {title for title, verdict in verdicts(guard).items() if verdict == "breaks"}
    assert found == broken


def test_calls_stand_at_the_bounds() -> None:
    calls = calls_of([PrivilegeRule(tool="send", arguments={"amount": {"maximum": 100}})])
    assert {call.name for call in calls} == {"send", "another tool"}
    amounts = [call.arguments.get("amount", LEFT_OUT) for call in calls if call.name == "send"]
    assert [amount for amount in amounts if type(amount) is int] == [99, 100, 101]
    assert LEFT_OUT in amounts
    assert "100" in amounts
    assert len(calls_of(list(RULES))) <= CALLS


def test_examples_of_every_keyword() -> None:
    schema = {
        "const": 1,
        "enum": ["a", "b"],
        "minLength": 2,
        "maxItems": 1,
        "pattern": "bob|eve",
        "items": {"const": 7},
        "anyOf": [{"const": 8}],
        "not": {"const": 9},
    }
    found = list(examples(schema))
    for value in (1, "a", "b", "xx", "xxx", [], ["x"], ["x", "x"], "bob", [7], 8, 9, True, None):
        assert any(repr(value) == repr(other) for other in found), value
