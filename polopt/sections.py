"""Sections of answers that have a form: what each token of such an answer decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

# What a decision of an answer is about, by the number in `extras["section"]`: to keep a subgoal or to take another one,
# the subgoal itself, or the action.
SECTIONS = ("keep", "switch", "subgoal", "action")
KEEP, SWITCH, SUBGOAL, ACTION = range(len(SECTIONS))


class SectionSpan(NamedTuple):
    """A part of an answer's text, from the character `begin` to before `end`, by its name in `SECTIONS`."""

    section: str
    begin: int
    end: int


def token_sections(ids: Sequence[int], spans: Sequence[SectionSpan], text: Callable[[list[int]], str]) -> list[int]:
    """Returns the number of the section that each of an answer's tokens is in, -1 for none: the span that holds the
    token's first character. Tokens behind the last span, such as the stop token, are in its section.

    text: decodes ids.
    """
    if not spans:
        return [-1] * len(ids)
    begins = _begins(ids, text)
    last = max(spans, key=lambda span: span.end)
    found = [-1 if begin < last.end else SECTIONS.index(last.section) for begin in begins]
    for span in spans:
        number = SECTIONS.index(span.section)
        found = [number if span.begin <= at < span.end else known for at, known in zip(begins, found, strict=True)]
    return found


def _begins(ids: Sequence[int], text: Callable[[list[int]], str]) -> list[int]:
    """Returns the place of each token's first character in the answer's text."""
    pieces = [len(text([token])) for token in ids]
    if sum(pieces) == len(text(list(ids))):
        return [sum(pieces[:i]) for i in range(len(ids))]
    return [len(text(list(ids[:i]))) for i in range(len(ids))]  # tokens that hold parts of a character
