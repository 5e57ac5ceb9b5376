"""What an error says of a name that does not exist. Imports nothing of polopt, and nothing heavy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# Most names in an error's list of them, and most letters of it.
MOST_NAMES, MOST_LETTERS = 12, 160


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error sentence: the likeliest meant name, else the list, of which a long one is cut."""
    known = sorted(known)
    close = difflib.get_close_matches(name[:100], known, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    shown = known[:MOST_NAMES]
    while len(", ".join(shown)) > MOST_LETTERS:
        shown = shown[:-1]
    more = f" and {len(known) - len(shown)} more" if len(known) > len(shown) else ""
    return f"; it has: {', '.join(shown) or 'none'}{more}"
