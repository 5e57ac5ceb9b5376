"""Letters that patterns do not tell apart: a small alphabet in place of Unicode's, and patterns over it for z3."""

from __future__ import annotations

import functools
import re
import string
import sys
from collections.abc import Iterator, Sequence
from re import _constants as c  # type: ignore[attr-defined]
from typing import Any

from polopt.guards.patterns import CATEGORIES, LinearPattern, Test, letter_test

ONE_LETTER = (c.LITERAL, c.NOT_LITERAL, c.ANY, c.IN)
# z3's code of the first class: no control sign, and no part of an escape.
FIRST_CODE = 0x100


class Alphabet:
    """The classes of letters that no pattern and no constant tells apart, each written as one letter of z3.

    Two letters are of one class if every test of a letter in the patterns, and equality with each letter of the
    constants, has the same outcome for both. A text is replaced letter by letter, which keeps its length and every
    match, so that z3's smaller alphabet loses nothing.

    patterns: all patterns that are asked about. constants: all texts that are compared with.
    """

    def __init__(self, patterns: Sequence[LinearPattern], constants: Sequence[str]) -> None:
        self._tests: dict[str, Test] = {}
        for letter in sorted(set("".join(constants))):
            self._tests[repr((c.LITERAL, ord(letter)))] = letter_test(c.LITERAL, ord(letter))
        cuts = {0, *(code for text in constants for letter in text for code in (ord(letter), ord(letter) + 1))}
        for pattern in patterns:
            for kind, value in _letters(pattern.items):
                self._tests[repr((kind, value))] = letter_test(kind, value)
                cuts.update(_cuts(kind, value))
        readable = string.ascii_lowercase + string.digits + string.ascii_uppercase + string.punctuation + " "
        candidates = [*readable, *(chr(code) for code in sorted(cuts) if code <= sys.maxunicode)]
        self._classes: dict[tuple[bool, ...], str] = {}
        for letter in candidates:
            self._classes.setdefault(self._signature(letter), letter)
        self._codes = {signature: chr(FIRST_CODE + i) for i, signature in enumerate(self._classes)}
        self._letters = dict(zip(self._codes.values(), self._classes.values(), strict=True))

    def _signature(self, letter: str) -> tuple[bool, ...]:
        return tuple(bool(test(letter)) for test in self._tests.values())

    def encode(self, text: str) -> str:
        """Returns the text in z3's letters."""
        return "".join(self._codes[self._signature(letter)] for letter in text)

    def decode(self, text: str) -> str:
        """Returns a text of the classes of z3's letters, which z3 writes as `\\u{101}`."""
        return "".join(self._letters[chr(int(code, 16))] for code in re.findall(r"\\u\{([0-9a-f]+)\}", text))

    def texts(self) -> Any:
        """Returns z3's regular expression of all texts."""
        import z3

        return z3.Star(self._one_of(list(self._letters)))

    def expression(self, pattern: LinearPattern) -> Any:
        """Returns z3's regular expression of the texts that a pattern matches."""
        return self._sequence(pattern.items)

    def _sequence(self, items: Any) -> Any:
        import z3

        found = [self._item(kind, value) for kind, value in items]
        if len(found) > 1:
            return z3.Concat(*found)
        return found[0] if found else z3.Re("")

    def _item(self, kind: Any, value: Any) -> Any:
        import z3

        if kind in ONE_LETTER:
            test = letter_test(kind, value)
            return self._one_of([code for code, letter in self._letters.items() if test(letter)])
        if kind is c.BRANCH:
            return z3.Union(*(self._sequence(branch) for branch in value[1]))
        if kind is c.SUBPATTERN:
            return self._sequence(value[-1])
        least, most, inner = value[0], value[1], self._sequence(value[2])
        if most is not c.MAXREPEAT:
            return z3.Loop(inner, int(least), int(most)) if most else z3.Re("")
        return z3.Concat(z3.Loop(inner, int(least), int(least)), z3.Star(inner)) if least else z3.Star(inner)

    def _one_of(self, codes: Sequence[str]) -> Any:
        import z3

        runs: list[list[str]] = []
        for code in codes:
            if runs and ord(code) == ord(runs[-1][1]) + 1:
                runs[-1][1] = code
            else:
                runs.append([code, code])
        found = [z3.Range(z3.StringVal(first), z3.StringVal(last)) for first, last in runs]
        if len(found) > 1:
            return z3.Union(*found)
        return found[0] if found else z3.Empty(z3.ReSort(z3.StringSort()))


def _letters(items: Any) -> Iterator[tuple[Any, Any]]:
    """Yields the items of a parsed pattern that stand for one letter."""
    for kind, value in items:
        if kind in ONE_LETTER:
            yield kind, value
        elif kind is c.BRANCH:
            for branch in value[1]:
                yield from _letters(branch)
        else:
            yield from _letters(value[-1])


def _cuts(kind: Any, value: Any) -> Iterator[int]:
    """Yields the codes at which the outcome of a test of a letter may change."""
    if kind is c.ANY:
        yield from (ord("\n"), ord("\n") + 1)
    elif kind in (c.LITERAL, c.NOT_LITERAL):
        yield from (value, value + 1)
    elif kind is c.RANGE:
        yield from (value[0], value[1] + 1)
    elif kind is c.CATEGORY:
        yield from _category_cuts(value)
    elif kind is c.IN:
        for member in value:
            if member[0] is not c.NEGATE:
                yield from _cuts(*member)


@functools.cache
def _category_cuts(category: Any) -> tuple[int, ...]:
    test = CATEGORIES[category]
    inside = [bool(test(chr(code))) for code in range(sys.maxunicode + 1)]
    return tuple(i for i in range(1, len(inside)) if inside[i] != inside[i - 1])
