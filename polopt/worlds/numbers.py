"""Parsing of written numbers: integers, decimals, fractions, percentages, thousands separators."""

from __future__ import annotations

import re
from fractions import Fraction

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)"
_DECIMAL = rf"(?:{_DIGITS}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{{1,3}}(?![0-9]))?"
_NUMBER = rf"{_DECIMAL}(?:\s*/\s*[-+]?{_DECIMAL})?\s*%?"
_WHOLE = re.compile(rf"\s*([-+]?)\s*({_NUMBER})\s*")
# After a word or a closing bracket a sign is an operator: the last number of `7-4` is 4.
_INSIDE = re.compile(rf"(?<![\w.])((?:(?<![\w)\]])[-+])?)({_NUMBER})(?!\w)")
MAX_LENGTH = 1000


def read_number(text: str) -> Fraction | None:
    """Returns the number that `text` consists of, exactly, or None if it is anything else.

    Accepts `42`, `-3.50`, `.5`, `1e-3`, `1,234,567`, `3/4`, `-1/2`, `12.5%` (which is 1/8). A comma separates groups of
    three digits only. A text longer than `MAX_LENGTH` or an exponent of over three digits is no number.
    """
    found = _WHOLE.fullmatch(text.replace("−", "-")) if len(text) <= MAX_LENGTH else None
    return _value(*found.groups()) if found else None


def last_number(text: str) -> Fraction | None:
    """Returns the last separate number in `text`, None if there is none.

    A sign belongs to the number only where it touches it and follows no word and no closing bracket.
    """
    values = [_value(*found) for found in _INSIDE.findall(text.replace("−", "-")) if len(found[1]) <= MAX_LENGTH]
    return values[-1] if values else None


def _value(sign: str, text: str) -> Fraction | None:
    text, percent = text.rstrip(), text.rstrip().endswith("%")
    above, _, below = text.rstrip("% ").partition("/")
    value, divisor = _fraction(above), _fraction(below) if below else Fraction(1)
    if not divisor:
        return None
    value = value / divisor / (100 if percent else 1)
    return -value if sign == "-" else value


def _fraction(decimal: str) -> Fraction:
    return Fraction(decimal.replace(",", "").strip())
