"""Regular expressions whose matching time is proportional to the length of the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from re import _constants as c  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

# States of an automaton, and letters of a text that is matched: a few seconds at most. The limit of letters is the
# same for every pattern, so that two patterns are undecidable for the same texts and can be compared.
MOST_STATES, MOST_LETTERS = 2_000, 10_000

Test = Callable[[str], Any]
CATEGORIES: dict[Any, Test] = {
    c.CATEGORY_DIGIT: re.compile(r"\d").match,
    c.CATEGORY_NOT_DIGIT: re.compile(r"\D").match,
    c.CATEGORY_SPACE: re.compile(r"\s").match,
    c.CATEGORY_NOT_SPACE: re.compile(r"\S").match,
    c.CATEGORY_WORD: re.compile(r"\w").match,
    c.CATEGORY_NOT_WORD: re.compile(r"\W").match,
}


class LinearPattern:
    """A regular expression of Python's syntax that must match the whole of a text.

    The pattern runs as an automaton that is in all of its states at once, without backtracking. Letters, classes,
    `.`, `|`, groups, repetitions, and `^` and `$` around the whole are supported; constructs that need memory or
    context (backreferences, lookahead, `\\b`), flags, and patterns of more than 2,000 states are refused. items: the
    parsed pattern without `^` and `$`, as Python's own parser of regular expressions returns it.

    Raises:
        ValueError: an invalid or unsupported pattern.
    """

    def __init__(self, pattern: str) -> None:
        try:
            tree = _parser.parse(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"pattern {pattern!r:.80} is no regular expression: {error}") from None
        if tree.state.flags & ~re.UNICODE.value:
            raise ValueError(f"pattern {pattern!r:.80} sets flags, which are not supported; write [Aa] for both cases")
        self.pattern = pattern
        # A state is (a test of the next letter, the next state), or a list of the states that it is equivalent to.
        self._states: list[tuple[Test, int] | list[int]] = [[]]
        items = list(tree)
        if items and items[0] == (c.AT, c.AT_BEGINNING):
            items = items[1:]
        if items and items[-1] == (c.AT, c.AT_END):
            items = items[:-1]
        self.items = items
        self._first = self._sequence(items, 0)

    def fullmatch(self, text: str) -> bool | None:
        """Tests whether the whole text matches; None for a text of more than 10,000 letters, which takes too long."""
        if len(text) > MOST_LETTERS:
            return None
        alive = self._closure([self._first])
        for letter in text:
            if not alive:
                return False
            steps = (self._states[i] for i in alive)
            alive = self._closure(state[1] for state in steps if isinstance(state, tuple) and state[0](letter))
        return 0 in alive

    def _closure(self, states: Iterable[int]) -> set[int]:
        found: set[int] = set()
        waiting = list(states)
        while waiting:
            if (i := waiting.pop()) not in found:
                found.add(i)
                if isinstance(state := self._states[i], list):
                    waiting += state
        return found

    def _add(self, state: tuple[Test, int] | list[int]) -> int:
        if len(self._states) >= MOST_STATES:
            raise ValueError(f"pattern {self.pattern!r:.80} is too large: more than {MOST_STATES} states")
        self._states.append(state)
        return len(self._states) - 1

    def _sequence(self, items: Any, after: int) -> int:
        """Returns the state from which the items lead to the state `after`."""
        for item in reversed(list(items)):
            after = self._item(item[0], item[1], after)
        return after

    def _item(self, kind: Any, value: Any, after: int) -> int:
        if kind in (c.LITERAL, c.NOT_LITERAL, c.ANY, c.IN):
            return self._add((letter_test(kind, value), after))
        if kind is c.BRANCH:
            return self._add([self._sequence(branch, after) for branch in value[1]])
        if kind is c.SUBPATTERN and not value[1] and not value[2]:
            return self._sequence(value[-1], after)
        if kind in (c.MAX_REPEAT, c.MIN_REPEAT):
            return self._repeat(value[0], value[1], value[2], after)
        raise ValueError(
            f"pattern {self.pattern!r:.80} has {str(kind).lower()}, which is not supported; letters, classes, '.', "
            "'|', groups and repetitions are"
        )

    def _repeat(self, least: int, most: Any, items: Any, after: int) -> int:
        if most is c.MAXREPEAT:
            loop = self._add([after])
            state = self._states[loop]
            assert isinstance(state, list)
            state.append(self._sequence(items, loop))
            after = loop
        else:
            end = after
            for _ in range(int(most) - least):
                after = self._add([end, self._sequence(items, after)])
        for _ in range(least):
            after = self._sequence(items, after)
        return after


def letter_test(kind: Any, value: Any) -> Test:
    """Compiles an item of a parsed pattern that stands for one letter."""
    if kind is c.ANY:
        return lambda letter: letter != "\n"
    if kind in (c.LITERAL, c.NOT_LITERAL):
        expected, same = chr(value), kind is c.LITERAL
        return lambda letter: (letter == expected) is same
    negated = value[0][0] is c.NEGATE
    tests = [_member(*member) for member in (value[1:] if negated else value)]
    return lambda letter: any(test(letter) for test in tests) is not negated


def _member(kind: Any, value: Any) -> Test:
    if kind is c.LITERAL:
        return lambda letter: ord(letter) == value
    if kind is c.RANGE:
        return lambda letter: value[0] <= ord(letter) <= value[1]
    return CATEGORIES[value]
