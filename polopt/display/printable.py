"""Untrusted text for a terminal, without the characters that a terminal interprets."""

from __future__ import annotations

import unicodedata

# Joiners of letters and emoji, which are harmless.
JOINERS = "\u200c\u200d"
OBEYED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def printable(text: str, *, keep: str = "\n") -> str:
    """Removes control characters, which move the cursor, clear the screen or write to the clipboard, from a text.

    Format characters that turn or hide the following text and line separators are removed as well; the characters in
    `keep` stay.
    """
    kept = keep + JOINERS
    return "".join(c for c in text if c.isprintable() or c in kept or unicodedata.category(c) not in OBEYED)
