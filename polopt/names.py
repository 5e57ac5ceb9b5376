"""Suggestions for unknown names in error messages. Imports nothing of polopt, and nothing slow."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# Limits of an error's list of names, in names and in characters.
MOST_NAMES, MOST_LETTERS = 12, 160


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns the end of an error sentence: the most similar name, else the list of names, shortened if it is long."""
    known = sorted(known)
    close = difflib.get_close_matches(name[:100], known, n=5, cutoff=0.5)
    if close:
        # Letters in another order are the likeliest slip.
        swapped = [each for each in close if sorted(each) == sorted(name)]
        return f"; did you mean {[*swapped, *close][0]!r}?"
    shown = known[:MOST_NAMES]
    while len(", ".join(shown)) > MOST_LETTERS:
        shown = shown[:-1]
    more = f" and {len(known) - len(shown)} more" if len(known) > len(shown) else ""
    return f"; it has: {', '.join(shown) or 'none'}{more}"
