"""What an error says of a name that does not exist. Imports nothing of polopt, and nothing heavy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error sentence: the likeliest meant name, else the whole list."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; it has: {', '.join(known) or 'none'}"
