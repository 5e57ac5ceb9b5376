"""Suggestions for unknown names in error messages. Imports nothing of polopt, and nothing slow."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# Limits of an error's list of names, in names and in characters.
MOST_NAMES, MOST_LETTERS = 12, 160


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns the end of an error sentence: the most similar name, else the list of names, shortened if it is long."""
    known = sorted(known)
    if close := closest(name, known, cutoff=0.5):
        return f"; did you mean {close!r}?"
    shown = known[:MOST_NAMES]
    while len(", ".join(shown)) > MOST_LETTERS:
        shown = shown[:-1]
    more = f" and {len(known) - len(shown)} more" if len(known) > len(shown) else ""
    return f"; it has: {', '.join(shown) or 'none'}{more}"


def closest(name: str, known: Iterable[str], cutoff: float) -> str | None:
    """Returns the most similar name, one of the same letters in another order first; None where none is similar."""
    close = difflib.get_close_matches(name[:100], sorted(known), n=30, cutoff=cutoff)
    return next((each for each in close if sorted(each) == sorted(name)), close[0] if close else None)
