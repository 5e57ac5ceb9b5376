"""Static analysis of privilege rules: conditions that fit no type, rules that overlap, rules that never decide."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from polopt.guards.call_pattern import ANY_TOOL
from polopt.guards.conditions import BOUNDS, LENGTHS, TYPES, condition, same_json
from polopt.guards.exact import Missing, find_call, z3_installed
from polopt.guards.guard import AllowedByAll, Guard, ToolCall, ToolCallError
from polopt.guards.privileges import PrivilegeRule, Privileges
from polopt.guards.rules import privilege_rules
from polopt.names import nearest

# Calls that the search for an overlap of two rules tries at most.
MOST_CALLS = 2_000
# Type -> the keywords of other types, which hold for none of its values.
NUMBERS, TEXTS, LISTS = tuple(BOUNDS), ("pattern", "minLength", "maxLength"), ("items", "minItems", "maxItems")
FITTING: dict[str, tuple[str, ...]] = {"integer": NUMBERS, "number": NUMBERS, "string": TEXTS, "array": LISTS}
# (schemas of the tools by name, the user's query) -> rules, as for `privilege_rules`.
RuleProposer = Callable[[Mapping[str, Any], str], Any]


# The test of rules: by listed values, bounds and equal keywords, or by the solver z3 where that leaves a question open.
RuleTest = Literal["conservative", "z3"]


class RuleProblem(NamedTuple):
    """kind: what the analysis found. rule: index of the rule that it is about. sentence: the finding. test: which test
    found it."""

    kind: Literal["type", "overlap", "unreachable"]
    rule: int
    sentence: str
    test: RuleTest = "conservative"


@dataclasses.dataclass(frozen=True)
class RuleAnalysis:
    """problems: what was found. test: the strongest test that was used. open: the questions that z3 left open, in
    words. Those of the conservative test are not listed: all where it found nothing."""

    problems: list[RuleProblem]
    test: RuleTest
    open: list[str]


@dataclasses.dataclass(frozen=True)
class Narrowing:
    """narrower: it is certain that the new rules allow no call that the old ones refuse. test: which test decided.
    opened: a call that the new rules allow and the old ones refuse; None if none was found."""

    narrower: bool
    test: RuleTest
    opened: ToolCall | None = None


def analyse(
    rules: Sequence[PrivilegeRule],
    tools: Mapping[str, Any] | None = None,
    missing: Missing = "deny",
    use_z3: bool | None = None,
) -> RuleAnalysis:
    """Returns what is wrong with rules, or may be unintended.

    type: a tool or an argument that no schema declares, and keywords or values that its declared type never meets.
    overlap: an allowing and a forbidding rule that match the same call, which the sentence names. unreachable: the
    rules before it match every call that it matches.

    The conservative test finds an overlap by values at the bounds of both conditions and an unreachable rule by one
    rule before it that certainly covers it, so that what it finds is true and it may miss some. Where z3 is installed,
    it decides what that test leaves open, patterns included; see `find_call` for what remains undecided.

    tools: each tool's JSON schema of its arguments, `{"properties": {"amount": {"type": "number"}}}`, as in the
    `inputSchema` of the Model Context Protocol; None leaves out the checks of types. Only `type` is read.
    missing: the setting of `Privileges` for arguments that a call leaves out.
    use_z3: whether z3 is used; None is where it is installed.
    """
    use_z3 = z3_installed() if use_z3 is None else use_z3
    found = [] if tools is None else [x for i, rule in enumerate(rules) for x in _types(i, rule, tools)]
    still_open: list[str] = []
    order = _ordered(range(len(rules)), rules)
    for later, i in enumerate(order):
        own, before = _name(i, rules), order[:later]
        covering = next((j for j in before if covers(rules[j], rules[i])), None)
        if covering is not None:
            sentence = f"{own} never decides: {_name(covering, rules)} matches all of its calls"
            found.append(RuleProblem("unreachable", i, sentence))
            continue
        if use_z3:
            answer = find_call([rules[i]], [rules[j] for j in before], missing)
            if answer.decided and answer.call is None:
                some = find_call([rules[i]], missing=missing).call is not None
                reason = "the rules before it match all of its calls" if some else "no call meets its conditions"
                found.append(RuleProblem("unreachable", i, f"{own} never decides: {reason}", "z3"))
                continue
            still_open += [] if answer.decided else [f"whether {own} ever decides"]
        for j in before:
            if rules[i].effect == rules[j].effect:
                continue
            test: RuleTest = "conservative"
            call = common_call(rules[i], rules[j], missing)
            if call is None and use_z3:
                answer = find_call([rules[i], rules[j]], missing=missing)
                call, test = answer.call, "z3"
                still_open += [] if answer.decided else [f"whether {own} and {_name(j, rules)} overlap"]
            if call is not None:
                where, first = f"{call.name} {dict(call.arguments)}", _name(j, rules)
                found.append(RuleProblem("overlap", i, f"{own} and {first} both match {where}; {first} decides", test))
    return RuleAnalysis(found, "z3" if use_z3 else "conservative", still_open)


def _ordered(indices: Iterable[int], rules: Sequence[PrivilegeRule]) -> list[int]:
    """Returns the indices of rules in the order in which they are tried."""
    return sorted(indices, key=lambda i: (rules[i].priority, rules[i].effect == "allow"))


def _name(i: int, rules: Sequence[PrivilegeRule]) -> str:
    return f"rule {i} ({rules[i].effect} {rules[i].tool})"


def _types(i: int, rule: PrivilegeRule, tools: Mapping[str, Any]) -> Iterator[RuleProblem]:
    if rule.tool == ANY_TOOL:
        return
    if rule.tool not in tools:
        yield RuleProblem("type", i, f"rule {i} is of the tool {rule.tool!r}, which does not exist"
                          f"{nearest(rule.tool, tools)}")  # fmt: skip
        return
    declared = tools[rule.tool].get("properties", {})
    for name, schema in rule.arguments.items():
        where = f"rule {i} ({rule.effect} {rule.tool}), argument {name}"
        if name not in declared:
            yield RuleProblem("type", i, f"{where}: the tool has no such argument{nearest(name, declared)}")
            continue
        kind = declared[name].get("type")
        if kind in TYPES:
            yield from (RuleProblem("type", i, f"{where}: {problem}") for problem in _misfits(schema, kind))


def _misfits(schema: Mapping[str, Any], kind: str) -> Iterator[str]:
    """Yields why a condition, or a part of one, holds for no value of a type."""
    for keyword, setting in schema.items():
        if keyword in (*NUMBERS, *TEXTS, *LISTS) and keyword not in FITTING.get(kind, ()):
            yield f"{keyword} never holds for the declared type {kind}"
        elif keyword in ("const", "enum"):
            for value in [setting] if keyword == "const" else setting:
                if not TYPES[kind](value):
                    yield f"{keyword} has {value!r:.40}, which is not of the declared type {kind}"
        elif keyword == "type" and setting != kind and {setting, kind} != {"integer", "number"}:
            yield f"type is {setting}, the declared type {kind}"
        elif keyword == "anyOf":
            for each in setting:
                yield from _misfits(each, kind)
        elif keyword == "not":
            yield from _misfits(setting, kind)


def covers(first: PrivilegeRule, second: PrivilegeRule) -> bool:
    """Tests whether `first` certainly matches every call that `second` matches. False where it does not, and where that
    cannot be decided.

    An allowing rule matches only what is certain, a forbidding one also what is undecidable: a forbidding rule is
    covered by an allowing one only if that has no conditions.
    """
    if first.tool not in (ANY_TOOL, second.tool):
        return False
    if not first.arguments:
        return True
    if first.effect == "allow" and second.effect == "forbid":
        return False
    return all(name in second.arguments and implies(second.arguments[name], schema)
               for name, schema in first.arguments.items())  # fmt: skip


def implies(narrow: Mapping[str, Any], wide: Mapping[str, Any]) -> bool:
    """Tests whether every value that meets `narrow` certainly meets `wide`, and none is undecidable for `wide` alone.

    Exact where `narrow` lists its values; else by equal keywords, bounds and lengths. False where undecided.
    """
    listed = [narrow["const"]] if "const" in narrow else narrow.get("enum")
    if listed is not None:
        own, other = condition(narrow), condition(wide)
        return all(other(value) is True for value in listed if own(value) is not False)
    return all(_keyword_implied(narrow, name, value) for name, value in wide.items())


def _keyword_implied(narrow: Mapping[str, Any], name: str, value: Any) -> bool:
    if name in narrow and same_json(narrow[name], value):
        return True
    if name == "type":
        return value == "number" and narrow.get("type") == "integer"
    if name in LENGTHS:
        return name in narrow and (narrow[name] >= value if name.startswith("min") else narrow[name] <= value)
    if name in ("minimum", "exclusiveMinimum"):
        if "exclusiveMinimum" in narrow and narrow["exclusiveMinimum"] >= value:
            return True
        return "minimum" in narrow and (narrow["minimum"] > value or (name == "minimum" and narrow["minimum"] == value))
    if name in ("maximum", "exclusiveMaximum"):
        if "exclusiveMaximum" in narrow and narrow["exclusiveMaximum"] <= value:
            return True
        return "maximum" in narrow and (narrow["maximum"] < value or (name == "maximum" and narrow["maximum"] == value))
    if name == "items":
        return "items" in narrow and implies(narrow["items"], value)
    return name == "anyOf" and any(implies(narrow, each) for each in value)


def common_call(first: PrivilegeRule, second: PrivilegeRule, missing: Missing = "deny") -> ToolCall | None:
    """Returns a call that both rules match, tried at the bounds of their conditions; None if no tried call is one."""
    tools = {first.tool, second.tool} - {ANY_TOOL} or {"any tool"}
    if len(tools) > 1:
        return None
    values: dict[str, list[Any]] = {}
    for rule in (first, second):
        for name, schema in rule.arguments.items():
            values.setdefault(name, []).extend(examples(schema))
    for chosen in itertools.islice(itertools.product(*values.values()), MOST_CALLS):
        try:
            call = ToolCall(next(iter(tools)), dict(zip(values, chosen, strict=True)))
        except ToolCallError:
            continue
        if first(call, missing) and second(call, missing):
            return call
    return None


def examples(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Yields values that meet a condition, that just do not, and of other types."""
    for keyword, setting in schema.items():
        if keyword == "const":
            yield setting
        elif keyword == "enum":
            yield from setting
        elif keyword in BOUNDS:
            yield from (setting - 1, setting, setting + 1, str(setting))
        elif keyword in ("minLength", "maxLength"):
            yield from ("x" * max(0, setting + step) for step in (-1, 0, 1))
        elif keyword in ("minItems", "maxItems"):
            yield from (["x"] * max(0, setting + step) for step in (-1, 0, 1))
        elif keyword == "pattern":
            yield from (setting, setting.split("|")[0], setting + "\n")
        elif keyword == "items":
            yield from ([value] for value in examples(setting))
        elif keyword == "anyOf":
            for each in setting:
                yield from examples(each)
        elif keyword == "not":
            yield from examples(setting)
    yield from ("x", True, None)


def narrower(
    new: Sequence[PrivilegeRule],
    old: Sequence[PrivilegeRule],
    missing: Missing = "deny",
    use_z3: bool | None = None,
) -> bool:
    """Tests whether the new rules certainly allow no call that the old ones refuse, see `narrowing`."""
    return narrowing(new, old, missing, use_z3).narrower


def narrowing(
    new: Sequence[PrivilegeRule],
    old: Sequence[PrivilegeRule],
    missing: Missing = "deny",
    use_z3: bool | None = None,
) -> Narrowing:
    """Tests whether the new rules certainly allow no call that the old ones refuse, their updates left out.

    The conservative test is sufficient: every allowing rule of the new ones is covered by an allowing rule of the old
    ones, and every forbidding rule of the old ones stands before that in the new ones, at priorities that keep its
    precedence. What it does not accept z3 decides, where it is installed: a call that an allowing rule of the new ones
    decides and that a forbidding rule of the old ones, or none, decides. `narrower` is False where that is undecided.

    missing: the setting of both guards for arguments that a call leaves out.
    use_z3: whether z3 is used; None is where it is installed.
    """
    if _certainly_narrower(new, old):
        return Narrowing(True, "conservative")
    if not (z3_installed() if use_z3 is None else use_z3):
        return Narrowing(False, "conservative")
    tried, before = ([rules[i] for i in _ordered(range(len(rules)), rules)] for rules in (new, old))
    # The rules of the old ones that refuse a call: each forbidding one where none before it matches; no rule at all.
    refusals = [([rule], before[:i]) for i, rule in enumerate(before) if rule.effect == "forbid"] + [([], before)]
    decided = True
    for i, rule in enumerate(tried):
        for deciding, earlier in refusals if rule.effect == "allow" else []:
            answer = find_call([rule, *deciding], [*tried[:i], *earlier], missing)
            if answer.call is not None:
                return Narrowing(False, "z3", answer.call)
            decided = decided and answer.decided
    return Narrowing(decided, "z3")


def _certainly_narrower(new: Sequence[PrivilegeRule], old: Sequence[PrivilegeRule]) -> bool:
    """Tests by the conservative test alone."""
    first_allowed = min((rule.priority for rule in new if rule.effect == "allow"), default=0)
    kept = all(
        any(n.effect == "forbid" and n.priority <= first_allowed and covers(n, o) for n in new)
        for o in old
        if o.effect == "forbid"
    )
    allowed = [rule for rule in old if rule.effect == "allow"]
    return kept and all(
        any((o.tool == ANY_TOOL or n.tool != ANY_TOOL) and covers(o, n) for o in allowed)
        for n in new
        if n.effect == "allow"
    )


def proposed(guard: Guard, propose: RuleProposer, tools: Mapping[str, Any], query: str) -> Guard:
    """Narrows a guard by rules that a program, such as a language model, proposes for a query: a call must be allowed
    by both, so that no proposal, whatever its content, opens what was refused.

    propose: is given the tools' schemas and the query, never what a tool returned.

    Raises:
        ConfigError: it returned no rules.
    """
    return AllowedByAll(guards=[guard, Privileges(rules=privilege_rules(propose(tools, query), "proposed rules"))])
