"""Exact questions about privilege rules, decided by the solver z3 where it is installed."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from polopt.guards.alphabet import Alphabet
from polopt.guards.call_pattern import ANY_TOOL
from polopt.guards.conditions import same_json
from polopt.guards.guard import ToolCall, ToolCallError
from polopt.guards.patterns import MOST_LETTERS, LinearPattern
from polopt.guards.privileges import PrivilegeRule

# Time of one question; a question that takes longer is undecided.
TIME_LIMIT_S = 5.0
# Elements of a list, and letters of a text beyond what patterns match, that a found call is written out with.
MOST_WRITTEN = 100_000
NULL, TRUTH, NUMBER, TEXT, LONG_TEXT, LIST, OBJECT = range(7)
Missing = Literal["deny", "skip"]
# z3's expressions of "the outcome is True" and of "the outcome is not False".
Outcomes = tuple[Any, Any]


class Answer(NamedTuple):
    """decided: the solver found a call, or proved that there is none. call: the call; None if there is none."""

    decided: bool
    call: ToolCall | None


def z3_installed() -> bool:
    """Tests whether z3 can be imported."""
    return importlib.util.find_spec("z3") is not None


def find_call(
    matched: Sequence[PrivilegeRule],
    unmatched: Sequence[PrivilegeRule] = (),
    missing: Missing = "deny",
    time_limit_s: float = TIME_LIMIT_S,
) -> Answer:
    """Searches a call that every rule of `matched` matches and no rule of `unmatched`, among all calls there are.

    A call that is returned was run through the rules. "There is none" is z3's proof, over a set of values that includes
    all of JSON: a text is z3's string over the letters that the patterns tell apart, a number a rational one, a list
    its length with as many elements as the conditions can tell apart. Undecided: z3 answers "unknown" or takes longer
    than the limit, or its call is not one of the rules', as where no floating-point number lies between two bounds.

    missing: the setting of `Privileges` for arguments that a call leaves out.
    """
    required = {rule.tool for rule in matched} - {ANY_TOOL}
    if len(required) > 1:
        return Answer(True, None)
    named = {rule.tool for rule in unmatched} - {ANY_TOOL}
    other = "any tool"
    while other in named:
        other += "_"
    decided = True
    for tool in required or [*sorted(named), other]:
        rest = [rule for rule in unmatched if rule.tool in (ANY_TOOL, tool)]
        answer = _find_call_of(tool, matched, rest, missing, time_limit_s)
        if answer.call is not None:
            return answer
        decided = decided and answer.decided
    return Answer(decided, None)


def _find_call_of(
    tool: str,
    matched: Sequence[PrivilegeRule],
    unmatched: Sequence[PrivilegeRule],
    missing: Missing,
    time_limit_s: float,
) -> Answer:
    import z3

    schemas: dict[str, list[Mapping[str, Any]]] = {}
    for rule in (*matched, *unmatched):
        for name, schema in rule.arguments.items():
            schemas.setdefault(name, []).append(schema)
    solver = z3.Solver()
    solver.set("timeout", math.ceil(1000 * time_limit_s))
    arguments = {name: _Argument(name, of_name) for name, of_name in schemas.items()}
    skipped = z3.BoolVal(missing == "skip")
    try:
        solver.add(*(_matches(rule, arguments, skipped) for rule in matched))
        solver.add(*(z3.Not(_matches(rule, arguments, skipped)) for rule in unmatched))
        for argument in arguments.values():
            solver.add(*argument.facts)
        result = solver.check()
        if result != z3.sat:
            return Answer(result == z3.unsat, None)
        model = solver.model()
        given = {name: argument.value_in(model) for name, argument in arguments.items() if argument.is_given(model)}
        call = ToolCall(tool, given)
    except (z3.Z3Exception, ToolCallError, _NotWritten):
        return Answer(False, None)
    true = all(rule(call, missing) for rule in matched) and not any(rule(call, missing) for rule in unmatched)
    return Answer(true, call if true else None)


def _matches(rule: PrivilegeRule, arguments: Mapping[str, _Argument], skipped: Any) -> Any:
    """Returns z3's expression of `PrivilegeRule.forward`."""
    import z3

    found = []
    for name, schema in rule.arguments.items():
        certain, possible = arguments[name].outcomes(schema)
        given = arguments[name].given
        found.append(z3.If(given, certain, skipped) if rule.effect == "allow" else z3.Or(z3.Not(given), possible))
    return _all(found)


class _NotWritten(Exception):
    """A value is too large to be written out, or to be compared with."""


class _Value:
    """z3's variables of one JSON value: its kind, and a value of each kind."""

    def __init__(self, name: str) -> None:
        import z3

        self.name, self.kind, self.truth = name, z3.Int(f"{name}.kind"), z3.Bool(f"{name}.truth")
        self.number, self.text = z3.Real(f"{name}.number"), z3.String(f"{name}.text")
        self.size, self.object = z3.Int(f"{name}.size"), z3.Int(f"{name}.object")
        self.elements: list[_Value] = []


class _Argument:
    """One argument of a call: whether it is given, its value, and the outcomes of conditions on it.

    facts: what holds of the variables, whatever the rules are; complete once all outcomes have been computed.
    schemas: all conditions that will be asked about.
    """

    def __init__(self, name: str, schemas: Sequence[Mapping[str, Any]]) -> None:
        import z3

        found = [pair for schema in schemas for pair in _keywords(schema)]
        constants = [value for name, setting in found for value in _constants(name, setting)]
        texts = [value for value in constants if isinstance(value, str) and len(value) <= MOST_LETTERS]
        self._patterns = {setting: LinearPattern(setting) for name, setting in found if name == "pattern"}
        self._alphabet = Alphabet(list(self._patterns.values()), texts)
        self._objects = [value for value in constants if isinstance(value, Mapping)]
        # Each `items` needs one element at most that does not meet it, and a constant list all of its elements.
        lengths = [len(value) for value in constants if isinstance(value, (list, tuple))]
        self._most_elements = max(1, sum(name == "items" for name, _ in found), *lengths, 0)
        self.facts: list[Any] = []
        self.given = z3.Bool(f"{name}.given")
        self._value = self._new(name)

    def _new(self, name: str) -> _Value:
        import z3

        value = _Value(name)
        is_text = value.kind == TEXT
        self.facts += [value.kind >= NULL, value.kind <= OBJECT, value.size >= 0]
        self.facts.append(z3.Implies(value.kind == LONG_TEXT, value.size > MOST_LETTERS))
        self.facts.append(z3.Implies(is_text, z3.InRe(value.text, self._alphabet.texts())))
        self.facts.append(z3.Length(value.text) <= MOST_LETTERS)
        return value

    def _elements(self, value: _Value) -> list[_Value]:
        while len(value.elements) < self._most_elements:
            value.elements.append(self._new(f"{value.name}.{len(value.elements)}"))
        return value.elements

    def outcomes(self, schema: Mapping[str, Any], value: _Value | None = None) -> Outcomes:
        """Returns the outcomes of a condition on the value, on the argument's by default."""
        found = [self._outcomes(name, setting, value or self._value) for name, setting in schema.items()]
        return _all([certain for certain, _ in found]), _all([possible for _, possible in found])

    def _outcomes(self, name: str, setting: Any, value: _Value) -> Outcomes:
        import z3

        if name in ("const", "enum"):
            same = _any([self._same(value, each) for each in ([setting] if name == "const" else setting)])
            return same, same
        if name == "type":
            return (self._of_type(setting, value),) * 2
        if name == "anyOf":
            found = [self.outcomes(each, value) for each in setting]
            return _any([certain for certain, _ in found]), _any([possible for _, possible in found])
        if name == "not":
            certain, possible = self.outcomes(setting, value)
            return z3.Not(possible), z3.Not(certain)
        if name == "pattern":
            matches = z3.InRe(value.text, self._alphabet.expression(self._patterns[setting]))
            return _only(value.kind == TEXT, matches, matches)
        if name == "items":
            pairs = [(value.size > i, self.outcomes(setting, e)) for i, e in enumerate(self._elements(value))]
            each = [_all([z3.Implies(there, pair[side]) for there, pair in pairs]) for side in (0, 1)]
            return _only(value.kind == LIST, each[0], each[1])
        if name in ("minLength", "maxLength"):
            is_text, is_long = value.kind == TEXT, value.kind == LONG_TEXT
            size = z3.If(is_long, value.size, z3.Length(value.text))
            within = size >= setting if name == "minLength" else size <= setting
            return _only(z3.Or(is_text, is_long), within, within)
        if name in ("minItems", "maxItems"):
            within = value.size >= setting if name == "minItems" else value.size <= setting
            return _only(value.kind == LIST, within, within)
        bound = _real(setting)
        within = {
            "minimum": value.number >= bound,
            "maximum": value.number <= bound,
            "exclusiveMinimum": value.number > bound,
            "exclusiveMaximum": value.number < bound,
        }[name]
        return _only(value.kind == NUMBER, within, within)

    def _of_type(self, name: str, value: _Value) -> Any:
        import z3

        if name == "string":
            return z3.Or(value.kind == TEXT, value.kind == LONG_TEXT)
        if name == "integer":
            return z3.And(value.kind == NUMBER, z3.IsInt(value.number))
        kinds = {"number": NUMBER, "boolean": TRUTH, "array": LIST, "object": OBJECT, "null": NULL}
        return value.kind == kinds[name]

    def _same(self, value: _Value, constant: Any) -> Any:
        """Returns z3's expression of `same_json`."""
        import z3

        if constant is None:
            return value.kind == NULL
        if isinstance(constant, bool):
            return z3.And(value.kind == TRUTH, value.truth == constant)
        if isinstance(constant, (int, float)):
            finite = isinstance(constant, int) or math.isfinite(constant)
            same = value.number == _real(constant) if finite else z3.BoolVal(False)
            return z3.And(value.kind == NUMBER, same)
        if isinstance(constant, str):
            if len(constant) > MOST_LETTERS:
                raise _NotWritten
            return z3.And(value.kind == TEXT, value.text == z3.StringVal(self._alphabet.encode(constant)))
        if isinstance(constant, (list, tuple)):
            pairs = zip(self._elements(value), constant, strict=False)
            return _all([value.kind == LIST, value.size == len(constant), *(self._same(e, x) for e, x in pairs)])
        if isinstance(constant, Mapping):
            place = next(i for i, known in enumerate(self._objects) if same_json(known, constant))
            return z3.And(value.kind == OBJECT, value.object == place)
        return z3.BoolVal(False)

    def is_given(self, model: Any) -> bool:
        import z3

        return z3.is_true(model.eval(self.given, model_completion=True))

    def value_in(self, model: Any, value: _Value | None = None) -> Any:
        """Returns the JSON value of a model of z3."""
        import z3

        value = value or self._value

        def of(expression: Any) -> Any:
            return model.eval(expression, model_completion=True)

        kind = of(value.kind).as_long()
        if kind in (NULL, TRUTH):
            return z3.is_true(of(value.truth)) if kind == TRUTH else None
        if kind == NUMBER:
            number = of(value.number).as_fraction()
            return int(number) if number.denominator == 1 else float(number)
        if kind == TEXT:
            return self._alphabet.decode(of(value.text).as_string())
        if kind == OBJECT:
            place = of(value.object).as_long()
            known = 0 <= place < len(self._objects)
            return self._objects[place] if known else {"another object": len(self._objects)}
        size = of(value.size).as_long()
        if size > MOST_WRITTEN:
            raise _NotWritten
        if kind == LONG_TEXT:
            return "x" * size
        elements = [self.value_in(model, each) for each in self._elements(value)[:size]]
        return elements + elements[-1:] * (size - len(elements))


def _all(found: Sequence[Any]) -> Any:
    import z3

    return z3.And(z3.BoolVal(True), *found)


def _any(found: Sequence[Any]) -> Any:
    import z3

    return z3.Or(z3.BoolVal(False), *found)


def _only(of_type: Any, certain: Any, possible: Any) -> Outcomes:
    """Returns the outcomes of a keyword that is undecidable for values of other types."""
    import z3

    return z3.And(of_type, certain), z3.Implies(of_type, possible)


def _real(number: float) -> Any:
    import z3

    return z3.RealVal(str(Fraction(number)))


def _keywords(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the keywords of a condition and of those inside it."""
    for name, setting in schema.items():
        yield name, setting
        for inner in setting if name == "anyOf" else [setting] if name in ("not", "items") else []:
            yield from _keywords(inner)


def _constants(name: str, setting: Any) -> Iterator[Any]:
    """Yields the constants of a keyword, elements of lists included."""
    if name in ("const", "enum"):
        waiting = [setting] if name == "const" else list(setting)
        while waiting:
            yield (value := waiting.pop())
            if isinstance(value, (list, tuple)):
                waiting += value
