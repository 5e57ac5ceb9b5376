"""Rules, conditions and patterns against plain code, and what is refused at the door."""

from __future__ import annotations

import itertools
import random
import re

import pytest

from polopt.config import ConfigError
from polopt.guards import (
    AllowedByAll,
    CallRefused,
    LinearPattern,
    PrivilegeRule,
    Privileges,
    ToolCall,
    ToolCallError,
    condition,
    guarded,
    privilege_rules,
    read_rules,
)


def test_a_whole_number_beyond_floating_point_is_compared() -> None:
    call = ToolCall.from_json('{"name": "pay", "arguments": {"x": 1' + "0" * 400 + "}}")
    for schema, matches in (({"maximum": 5}, False), ({"minimum": 5.5}, True), ({"type": "integer"}, True)):
        assert PrivilegeRule(tool="pay", arguments={"x": schema})(call) is matches


def test_patterns_match_as_pythons_do() -> None:
    """Random patterns on every short text of three letters."""
    texts = ["".join(t) for n in range(6) for t in itertools.product("ab\n", repeat=n)]

    def pattern(draw: random.Random, depth: int) -> str:
        if not depth:
            return draw.choice(["a", "b", ".", "[ab]", "[^a]", r"\s", r"\w", "", "\n"])
        one, other = (pattern(draw, depth - 1) for _ in range(2))
        return draw.choice(
            [f"{one}{other}", f"(?:{one}|{other})", f"({one})*", f"({one})+?", f"(?:{one}){{1,3}}", f"({one})?{other}"]
        )

    for seed in range(150):
        found = pattern(random.Random(seed), 3)
        ours, theirs = LinearPattern(found), re.compile(found)
        for text in texts:
            assert ours.fullmatch(text) is (theirs.fullmatch(text) is not None), (found, text)
    assert LinearPattern("^ab$").fullmatch("ab")
    assert not LinearPattern("^ab$").fullmatch("ab\n")


def test_a_pattern_that_makes_others_backtrack_for_ever_takes_no_time() -> None:
    assert LinearPattern("(a+)+b").fullmatch("a" * 5000) is False
    assert LinearPattern("(a|a)*(a|aa)*c").fullmatch("a" * 5000) is False
    assert LinearPattern("a*").fullmatch("a" * 10_000_000) is None


@pytest.mark.parametrize(
    "pattern", [r"(a)\1", "a(?=b)", r"\bx", "(?i)a", "a^b", "(", "((a{1,60}){1,60}){1,60}", "(?P<x>a)(?(x)b|c)"]
)
def test_patterns_that_cannot_run_so_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        LinearPattern(pattern)


VALUES = [True, False, None, 0, 1, 1.0, 1.5, -3, 7, "", "1", "ab", "abc", [], [1], [1, "a"], {}, {"a": 1}]
NUMBERS = [x for x in VALUES if isinstance(x, (int, float)) and not isinstance(x, bool)]


@pytest.mark.parametrize(
    ("schema", "true", "unknown"),
    [
        ({}, VALUES, []),
        ({"const": 1}, [1, 1.0], []),
        ({"const": True}, [True], []),
        ({"enum": [0, "ab", None]}, [None, 0, "ab"], []),
        ({"enum": [[1, "a"], {"a": 1}]}, [[1, "a"], {"a": 1}], []),
        ({"type": "integer"}, [0, 1, 1.0, -3, 7], []),
        ({"type": "boolean"}, [True, False], []),
        ({"minimum": 1}, [1, 1.0, 1.5, 7], [x for x in VALUES if not any(x is n for n in NUMBERS)]),
        ({"exclusiveMaximum": 1}, [0, -3], [x for x in VALUES if not any(x is n for n in NUMBERS)]),
        ({"pattern": "a."}, ["ab"], [x for x in VALUES if not isinstance(x, str)]),
        ({"minLength": 1, "maxLength": 2}, ["1", "ab"], [x for x in VALUES if not isinstance(x, str)]),
        ({"items": {"type": "integer"}, "maxItems": 1}, [[], [1]], [x for x in VALUES if not isinstance(x, list)]),
        ({"not": {"type": "string"}}, [x for x in VALUES if not isinstance(x, str)], []),
        ({"anyOf": [{"const": "1"}, {"minimum": 7}]}, [7, "1"], "others"),
    ],
)
def test_conditions(schema, true, unknown) -> None:
    holds = condition(schema)
    for value in VALUES:
        same = [type(value) is type(x) and value == x for x in true]
        expected: bool | None = any(same)
        if unknown == "others" and not expected:
            expected = None if not any(value is n for n in NUMBERS) else False
        elif any(type(value) is type(x) and value == x for x in unknown):
            expected = None
        assert holds(value) is expected, (schema, value)


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ({"enumm": [1]}, "'enumm' is not supported in a condition; did you mean 'enum'"),
        ({"multipleOf": 2}, "'multipleOf' is not supported"),
        ({"enum": 1}, "'enum' takes a list, found 1"),
        ({"minimum": "1"}, "'minimum' takes a number, found '1'"),
        ({"type": "text"}, "'type' takes one of string"),
        ({"maxLength": True}, "'maxLength' takes a whole number"),
        ({"items": 3}, "a condition must be a mapping"),
        ({"pattern": "("}, "is no regular expression"),
    ],
)
def test_conditions_that_are_not_supported_are_refused_in_the_rule(schema, sentence) -> None:
    with pytest.raises(ConfigError, match=r"rules\[0\]: PrivilegeRule of send, argument to: .*" + re.escape(sentence)):
        privilege_rules([{"tool": "send", "arguments": {"to": schema}}])


def test_rules_at_the_door(tmp_path) -> None:
    (tmp_path / "rules.yaml").write_text("- tool: read\n- {tool: send, effect: forbid, update: [{tool: x}]}\n")
    assert [r.tool for r in read_rules(tmp_path / "rules.yaml")] == ["read", "send"]
    for data, sentence in (
        ({}, "must be a list of rules"),
        ([{"effect": "allow"}], r"rules\[0\] must be a rule"),
        (
            [{"tool": "x"}, {"tool": "x", "efect": "allow"}],
            r"rules\[1\].efect is not a setting of a rule",
        ),
        (
            [{"tool": "x", "update": [{"tool": "y", "effect": "maybe"}]}],
            r"rules\[0\].update\[0\]: .* = 'maybe'",
        ),
    ):
        with pytest.raises(ConfigError, match=sentence):
            privilege_rules(data)
    with pytest.raises(ConfigError, match="does not exist"):
        read_rules(tmp_path / "none.yaml")


def test_decisions_are_those_of_sorting_by_hand() -> None:
    """Random tables of rules over enumerated arguments, every call; missing arguments both ways."""
    calls = [ToolCall(t, {"x": x} if x is not None else {}) for t in "abc" for x in (0, 1, 2, None)]
    for seed in range(150):
        draw = random.Random(seed)
        table = [
            {
                "tool": draw.choice("ab*"),
                "effect": draw.choice(["allow", "forbid"]),
                "priority": draw.randrange(3),
                "arguments": {"x": {"enum": draw.sample(range(3), 2)}} if draw.random() < 0.8 else {},
            }
            for _ in range(draw.randrange(5))
        ]
        missing = draw.choice(["deny", "skip"])
        guard = Privileges(rules=privilege_rules(table), missing=missing)
        for call in calls:
            allowed = False
            for priority in range(3):
                about = [r for r in table if r["priority"] == priority and r["tool"] in ("*", call.name)]
                hit = set()
                for r in about:
                    if not r["arguments"]:
                        hit.add(r["effect"])
                    elif "x" not in call.arguments:
                        hit |= {r["effect"]} - ({"allow"} if missing == "deny" else set())
                    elif call.arguments["x"] in r["arguments"]["x"]["enum"]:
                        hit.add(r["effect"])
                if hit:
                    allowed = "forbid" not in hit
                    break
            assert guard(call).allow is allowed, (table, missing, call)


def test_the_strictest_fallback_of_those_that_refuse_holds() -> None:
    asking = Privileges(fallback="ask")
    ending = Privileges(rules=[PrivilegeRule(tool="x", effect="forbid", fallback="end")])
    call = ToolCall("x", {})
    assert asking(call).fallback == "ask"
    assert AllowedByAll(guards=[asking, ending])(call).fallback == "end"
    assert AllowedByAll(guards=[ending, asking])(call).fallback == "end"
    assert not AllowedByAll(guards=[])(call).allow


def test_calls_are_plain_json_read_once() -> None:
    call = ToolCall.from_json('{"name": "send", "arguments": {"to": ["bob"]}}')
    assert call == ToolCall("send", {"to": ["bob"]})
    mutable = {"to": ["bob"]}
    copied = ToolCall("send", mutable)
    mutable["to"].append("eve")
    assert copied.arguments == {"to": ["bob"]}
    for text in (
        '{"name": "send", "arguments": {"to": "bob", "to": "eve"}}',
        '{"name": "send", "name": "read"}',
        '{"name": "send", "arguments": {"amount": NaN}}',
        '{"name": "send", "arguments": [1]}',
        '{"name": "send", "extra": 1}',
        '{"name": 1}',
        "[]",
        "send()",
    ):
        with pytest.raises(ToolCallError, match="a tool call must be"):
            ToolCall.from_json(text)
    with pytest.raises(ToolCallError, match="are not JSON"):
        ToolCall("send", {"to": object()})


def test_guarded_tools_run_what_is_allowed_and_nothing_else() -> None:
    ran: list[tuple[str, object]] = []
    tools = {"send": lambda to, amount=1000: ran.append(("send", to)), "read": lambda: ran.append(("read", None))}
    rules = [
        PrivilegeRule(tool="read", update=[PrivilegeRule(tool="send", effect="forbid")]),
        PrivilegeRule(tool="send", arguments={"to": {"const": "bob"}, "amount": {"maximum": 9}}),
    ]
    safe = guarded(tools, Privileges(rules=rules))
    safe["send"](to="bob", amount=5)
    for arguments in ({"to": "eve", "amount": 5}, {"to": "bob"}, {"to": "bob", "amount": "5"}):
        with pytest.raises(CallRefused, match="the call of send was refused: no rule allows send with these arguments"):
            safe["send"](**arguments)
    safe["read"]()
    with pytest.raises(CallRefused, match="a rule forbids"):
        safe["send"](to="bob", amount=5)
    assert ran == [("send", "bob"), ("read", None)]
    assert [call.name for call in safe.memory] == ["send", "read"]
    assert len(safe.refused) == 4
    assert set(safe) == {"send", "read"}


def test_a_person_is_asked_and_an_end_is_an_end() -> None:
    tools = {"send": lambda to: to}
    asked: list[str] = []

    def ask(call: ToolCall, reason: str) -> bool:
        asked.append(reason)
        return call.arguments["to"] == "bob"

    safe = guarded(tools, Privileges(fallback="ask"), ask)
    assert safe["send"](to="bob") == "bob"
    with pytest.raises(CallRefused):
        safe["send"](to="eve")
    assert asked == ["no rule allows the tool send"] * 2
    with pytest.raises(CallRefused):
        guarded(tools, Privileges(fallback="ask"))["send"](to="bob")
    rules = [PrivilegeRule(tool="send", arguments={"to": {"const": "bob"}})]
    ending = guarded(tools, Privileges(rules=rules, fallback="end"), ask)
    assert ending["send"](to="bob") == "bob"
    for to in ("eve", "bob"):
        with pytest.raises(CallRefused):
            ending["send"](to=to)
