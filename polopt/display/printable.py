"""Text of others on a terminal, without what a terminal would obey."""

from __future__ import annotations

import unicodedata

# They join letters and emoji that belong together.
JOINERS = "\u200c\u200d"
OBEYED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def printable(text: str, *, keep: str = "\n") -> str:
    """The text without control characters, which move the cursor, clear the screen or write to the clipboard, without
    the format characters that turn or hide what follows, and without line separators; `keep` stays."""
    kept = keep + JOINERS
    return "".join(c for c in text if c.isprintable() or c in kept or unicodedata.category(c) not in OBEYED)
