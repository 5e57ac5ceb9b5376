"""Conditions on an argument of a tool call, in a decidable subset of JSON Schema."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from polopt.guards.patterns import LinearPattern
from polopt.names import nearest

# True and False as in a schema; None if undecidable, which a guard treats as the outcome that refuses the call.
Outcome = bool | None
Condition = Callable[[Any], Outcome]

TYPES: dict[str, Callable[[Any], bool]] = {
    "string": lambda x: isinstance(x, str),
    "integer": lambda x: _is_number(x) and (isinstance(x, int) or x.is_integer()),
    "number": lambda x: _is_number(x),
    "boolean": lambda x: isinstance(x, bool),
    "array": lambda x: isinstance(x, list),
    "object": lambda x: isinstance(x, dict),
    "null": lambda x: x is None,
}
BOUNDS: dict[str, Callable[[Any, Any], bool]] = {
    "minimum": lambda x, bound: x >= bound,
    "maximum": lambda x, bound: x <= bound,
    "exclusiveMinimum": lambda x, bound: x > bound,
    "exclusiveMaximum": lambda x, bound: x < bound,
}
LENGTHS: dict[str, tuple[type[Any], Callable[[int, int], bool]]] = {
    "minLength": (str, lambda n, bound: n >= bound),
    "maxLength": (str, lambda n, bound: n <= bound),
    "minItems": (list, lambda n, bound: n >= bound),
    "maxItems": (list, lambda n, bound: n <= bound),
}
KEYWORDS = ("const", "enum", "type", "pattern", *BOUNDS, *LENGTHS, "items", "anyOf", "not")


def condition(schema: Any) -> Condition:
    """Compiles a schema to a condition on a value: every keyword must hold. `{}` holds for every value.

    const, enum: equal to the value, to one of the values; true is not 1, and 1 is 1.0. type. pattern: the *whole* text
    matches, see `LinearPattern`. minimum, maximum, exclusiveMinimum, exclusiveMaximum. minLength, maxLength.
    minItems, maxItems, items: of every element. anyOf, not.

    Unlike in JSON Schema, a keyword about numbers, texts or lists does not hold for a value of another type: its
    outcome is None.

    Raises:
        ValueError: no mapping, a keyword that is not supported, or a keyword's value of the wrong type.
    """
    if not isinstance(schema, Mapping):
        raise ValueError(f"a condition must be a mapping such as {{enum: [a, b]}}, found {schema!r:.60}")
    made = [_keyword(str(name), value) for name, value in schema.items()]
    return lambda value: all_hold([each(value) for each in made])


def all_hold(outcomes: list[Outcome]) -> Outcome:
    """Returns the conjunction of outcomes: False if one is False, else None if one is None, else True."""
    if False in outcomes:
        return False
    return None if None in outcomes else True


def _keyword(name: str, value: Any) -> Condition:
    if name == "const":
        return lambda x: same_json(x, value)
    if name == "enum":
        _check(isinstance(value, (list, tuple)), name, "a list", value)
        return lambda x: any(same_json(x, each) for each in value)
    if name == "type":
        _check(value in TYPES if isinstance(value, str) else False, name, f"one of {', '.join(TYPES)}", value)
        return TYPES[value]
    if name == "pattern":
        _check(isinstance(value, str), name, "a regular expression", value)
        found = LinearPattern(value)
        return lambda x: found.fullmatch(x) if isinstance(x, str) else None
    if name in BOUNDS:
        _check(_is_number(value), name, "a number", value)
        return lambda x: BOUNDS[name](x, value) if _is_number(x) else None
    if name in LENGTHS:
        _check(isinstance(value, int) and not isinstance(value, bool), name, "a whole number", value)
        kind, test = LENGTHS[name]
        return lambda x: test(len(x), value) if isinstance(x, kind) else None
    if name == "items":
        each = condition(value)
        return lambda x: all_hold([each(one) for one in x]) if isinstance(x, list) else None
    if name == "anyOf":
        _check(isinstance(value, (list, tuple)) and len(value) > 0, name, "a list of conditions", value)
        several = [condition(one) for one in value]
        return lambda x: _opposite(all_hold([_opposite(one(x)) for one in several]))
    if name == "not":
        denied = condition(value)
        return lambda x: _opposite(denied(x))
    raise ValueError(f"the keyword {name!r:.60} is not supported in a condition{nearest(name, KEYWORDS)}")


def _opposite(outcome: Outcome) -> Outcome:
    return None if outcome is None else not outcome


def _check(good: bool, name: str, expected: str, value: Any) -> None:
    if not good:
        raise ValueError(f"the keyword {name!r} takes {expected}, found {value!r:.60}")


def _is_number(value: Any) -> bool:
    # A whole number may be too large for a floating-point one, and is finite.
    whole = isinstance(value, int) and not isinstance(value, bool)
    return whole or (isinstance(value, float) and math.isfinite(value))


def same_json(a: Any, b: Any) -> bool:
    """Tests whether two JSON values are equal: numbers by their value, truth values only to truth values."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same_json(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same_json(a[key], b[key]) for key in a)
    return bool(a == b)
