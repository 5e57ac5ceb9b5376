"""Questions about privilege rules that z3 decides, against every call of a finite set."""

from __future__ import annotations

import itertools
import random
import re

import pytest

from polopt.guards import LinearPattern, PrivilegeRule, Privileges, ToolCall, analyse, narrower, narrowing
from polopt.guards.alphabet import Alphabet
from polopt.guards.exact import find_call

z3 = pytest.importorskip("z3")

# Every argument's value, "none" for one that is left out. The conditions below tell no other values apart: for each
# JSON value there is one here with the same outcomes.
VALUES = ("none", -1, 0, 0.5, 1, 1.5, 2, 3, "", "a", "b", "aa", "ab", "ba", "bbb", [], [1], [0], ["a"], [0, 1], [1, 1],
          [1, "a"], [0, "a"], [None, None], None, True, {}, {"k": 1})  # fmt: skip
SCHEMAS = (
    {"minimum": 1},
    {"exclusiveMinimum": 1},
    {"maximum": 1},
    {"exclusiveMaximum": 2, "minimum": 0},
    {"type": "integer"},
    {"enum": [1, 2]},
    {"const": "a"},
    {"minLength": 2},
    {"maxLength": 1},
    {"pattern": "a*"},
    {"pattern": "a|b"},
    {"pattern": "[^a].*"},
    {"items": {"minimum": 1}},
    {"minItems": 2},
    {"maxItems": 0},
    {"not": {"pattern": "a+"}},
    {"not": {"items": {"minimum": 1}}},
    {"anyOf": [{"const": True}, {"minimum": 1}]},
    {"const": [0, 1]},
    {"const": {"k": 1}},
    {"type": "array", "not": {"const": [1]}},
    {},
)
CALLS = [
    ToolCall(tool, {name: value for name, value in (("x", x), ("y", y)) if value != "none"})
    for tool in ("p", "q", "other")
    for x, y in itertools.product(VALUES, ("none", 1, 2, "", "a"))
]


def rule(draw: random.Random) -> PrivilegeRule:
    arguments = {"x": {**draw.choice(SCHEMAS), **draw.choice(SCHEMAS)}} if draw.random() < 0.8 else {}
    if draw.random() < 0.3:
        arguments["y"] = draw.choice([{"const": 1}, {"minLength": 1}, {"not": {"minLength": 1}}])
    tool, effect, priority = draw.choice("ppq*"), draw.choice(["allow", "forbid"]), draw.randrange(2)
    return PrivilegeRule(tool=tool, effect=effect, arguments=arguments, priority=priority)


def test_a_search_finds_a_call_where_enumeration_does() -> None:
    found = none = 0
    for seed in range(150):
        first, second, third = (rule(random.Random(f"{seed}/{i}")) for i in range(3))
        mode = "deny" if seed % 2 else "skip"
        listed = [c for c in CALLS if first(c, mode) and second(c, mode) and not third(c, mode)]
        answer = find_call([first, second], [third], mode)
        assert answer.decided
        assert (answer.call is not None) == (len(listed) > 0), (first, second, third, answer.call, listed[:1])
        if answer.call is not None:
            assert first(answer.call, mode)
            assert not third(answer.call, mode)
        found, none = found + (answer.call is not None), none + (answer.call is None)
    assert min(found, none) > 40


def test_narrowing_is_decided_as_by_enumeration() -> None:
    """Both directions: what z3 accepts opens no call, and what it does not accept opens one, which it names."""
    proven = opened = beyond = 0
    for seed in range(100):
        old, new = ([rule(random.Random(f"{seed}/{side}/{i}")) for i in range(2)] for side in "on")
        missing = "deny" if seed % 2 else "skip"
        result = narrowing(new, old, missing)
        after, before = (Privileges(rules=rules, missing=missing) for rules in (new, old))
        listed = [c for c in CALLS if after(c).allow and not before(c).allow]
        assert result.narrower == (not listed), (old, new, listed[:1])
        assert (result.opened is None) == result.narrower
        proven, opened = proven + result.narrower, opened + (not result.narrower)
        beyond += result.narrower and not narrower(new, old, use_z3=False)
    assert min(proven, opened, beyond) > 15


def test_unreachable_rules_and_overlaps_are_those_of_enumeration() -> None:
    unreachable = 0
    for seed in range(60):
        rules = [rule(random.Random(f"{seed}/{i}")) for i in range(3)]
        order = sorted(range(3), key=lambda i: (rules[i].priority, rules[i].effect == "allow"))
        result = analyse(rules, use_z3=True)
        assert (result.test, result.open) == ("z3", [])
        listed = {
            i
            for place, i in enumerate(order)
            if not any(rules[i](c) and not any(rules[j](c) for j in order[:place]) for c in CALLS)
        }
        assert {p.rule for p in result.problems if p.kind == "unreachable"} == listed, rules
        overlapping = {
            i
            for place, i in enumerate(order)
            for j in order[:place]
            if i not in listed
            and rules[i].effect != rules[j].effect
            and any(rules[i](c) and rules[j](c) for c in CALLS)
        }
        assert {p.rule for p in result.problems if p.kind == "overlap"} == overlapping, rules
        unreachable += len(listed)
    assert unreachable > 20


def test_a_pattern_inside_another_is_proven_where_the_conservative_test_does_not_know() -> None:
    old = [PrivilegeRule(tool="send", arguments={"to": {"pattern": r"[a-z.]+@(corp|lab)\.com"}})]
    new = [PrivilegeRule(tool="send", arguments={"to": {"pattern": r"[a-z]+@corp\.com"}})]
    unknown, proven = narrowing(new, old, use_z3=False), narrowing(new, old)
    assert (unknown.narrower, unknown.test) == (False, "conservative")
    assert (proven.narrower, proven.test, proven.opened) == (True, "z3", None)
    wider = narrowing(old, new)
    assert wider.opened is not None
    assert re.fullmatch(r"[a-z.]+@(corp|lab)\.com", wider.opened.arguments["to"])
    assert not re.fullmatch(r"[a-z]+@corp\.com", wider.opened.arguments["to"])


def test_elements_outside_of_a_list_do_not_count() -> None:
    for size, there in ((0, False), (1, True), (5, True)):
        schema = {"minItems": size, "maxItems": size, "not": {"items": {"minimum": 1}}}
        answer = find_call([PrivilegeRule(tool="t", arguments={"x": schema})])
        assert answer.decided
        assert (answer.call is not None) == there
        assert answer.call is None or len(answer.call.arguments["x"]) == size


def test_a_rule_covered_by_several_is_unreachable() -> None:
    halves = [PrivilegeRule(tool="pay", arguments={"x": {key: 5}}) for key in ("minimum", "maximum")]
    rules = [*halves, PrivilegeRule(tool="pay", arguments={"x": {"type": "number"}}, priority=200)]
    assert analyse(rules, use_z3=False).problems == []
    (problem,) = analyse(rules).problems
    assert problem == ("unreachable", 2, "rule 2 (allow pay) never decides: the rules before it match all of its calls",
                       "z3")  # fmt: skip
    never = PrivilegeRule(tool="pay", arguments={"x": {"minimum": 2, "maximum": 1}}, priority=300)
    (problem,) = analyse([PrivilegeRule(tool="read"), never]).problems
    assert problem[:3] == ("unreachable", 1, "rule 1 (allow pay) never decides: no call meets its conditions")


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        (r"\w+\s\d{2,3}", ["aé 12", "a 1", "a\n123", "a 1234", "٣ ٣٣"]),
        (r"(ab?|[^a-c]){2}", ["aba", "dd", "ad", "b", "cc"]),
        (r"a{0}b*?", ["", "bb", "a"]),
        (r".*\W", ["a!", "\n!", "a"]),
        (r"[\D\s]", ["5", "x", " "]),
        (r"[^\n]x|", ["", "\nx", "yx"]),
        (r"𝔘{2,}", ["𝔘𝔘𝔘", "𝔘", "U" * 2]),
    ],
)
def test_patterns_are_translated(pattern: str, texts: list[str]) -> None:
    for text in texts:
        alphabet = Alphabet([LinearPattern(pattern)], [text])
        inside = z3.simplify(z3.InRe(alphabet.encode(text), alphabet.expression(LinearPattern(pattern))))
        assert z3.is_true(inside) == (re.fullmatch(pattern, text) is not None), text
        assert alphabet.decode(z3.StringVal(alphabet.encode(text)).as_string()) == text


def test_what_the_solver_does_not_decide_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two neighbouring floating-point numbers have rational ones between them, and no JSON number.
    gap = PrivilegeRule(tool="t", arguments={"x": {"exclusiveMinimum": 1.0, "exclusiveMaximum": 1.0 + 2**-52}})
    assert find_call([gap]) == (False, None)
    assert find_call([PrivilegeRule(tool="t", arguments={"x": {"minItems": 10**9}})]).decided is False
    old, new = ([PrivilegeRule(tool="t", arguments={"x": {"pattern": pattern}})] for pattern in ("a+", "aa"))
    assert narrower(new, old)
    monkeypatch.setattr(z3.Solver, "check", lambda self: z3.unknown)
    assert not narrower(new, old)
    result = analyse([*new, PrivilegeRule(tool="t", effect="forbid", arguments={"x": {"pattern": "b+"}})])
    assert [problem.kind for problem in result.problems] == []
    assert result.open[-1] == "whether rule 0 (allow t) and rule 1 (forbid t) overlap"
    assert sum(sentence.endswith("ever decides") for sentence in result.open) == 2


def test_long_texts_are_undecidable_for_every_pattern() -> None:
    allow = PrivilegeRule(tool="t", arguments={"x": {"pattern": r"(.|\n)*"}})
    forbid = PrivilegeRule(tool="t", effect="forbid", arguments={"x": {"pattern": "a*"}})
    length = PrivilegeRule(tool="t", arguments={"x": {"minLength": 10_001}})
    answer = find_call([length, forbid])
    assert answer.call is not None
    assert len(answer.call.arguments["x"]) > 10_000
    assert find_call([length, allow]) == (True, None)
