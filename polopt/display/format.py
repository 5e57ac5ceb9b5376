"""Human-readable formats of numbers and texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from polopt.display.printable import printable
from polopt.training.estimates import SHARE, spelt, unit_of

SPARKS = "▁▂▃▄▅▆▇█"


def duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s" if minutes < 10 else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def count(number: float) -> str:
    """Formats a count: 1,234 or 1.23 million."""
    for size, unit in ((1e9, " billion"), (1e6, " million")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:,.0f}"


def size(number: float) -> str:
    """Formats a number of bytes."""
    for unit, step in (("GB", 1e9), ("MB", 1e6)):
        if number >= step:
            return f"{number / step:.3g} {unit}"
    return f"{number / 1e3:.0f} kB"


def percent(rate: float) -> str:
    return f"{100 * rate:.1f} %"


def rate(found: Mapping[str, Any]) -> str:
    """Formats an estimate with its interval, as evaluations.jsonl holds them.

    Fractions are in percent, 41.2 % [36.5, 46.1]; other units as they are, 231.5 [210.2, 252.8].
    """
    if unit_of(found) != SHARE:
        return f"{spelt(found['estimate'])} [{spelt(found['low'])}, {spelt(found['high'])}]"
    return f"{percent(found['estimate'])} [{100 * found['low']:.1f}, {100 * found['high']:.1f}]"


def sparkline(values: Sequence[float], width: int) -> str:
    """Draws the whole series in `width` characters, each the mean of its share."""
    if not values or width < 1:
        return ""
    n = min(width, len(values))
    shares = [values[i * len(values) // n : (i + 1) * len(values) // n] for i in range(n)]
    means = [sum(s) / len(s) for s in shares]
    low, high = min(means), max(means)
    spread = (high - low) or 1.0
    return "".join(SPARKS[min(len(SPARKS) - 1, int((m - low) / spread * len(SPARKS)))] for m in means)


def one_line(text: str, width: int, *, tail: bool = False) -> str:
    """Formats text on one line of at most `width` characters, its beginning or its tail, without control characters."""
    flat = " ".join(printable(" ".join(text.split()), keep="").split())
    if len(flat) <= width:
        return flat
    return "…" + flat[len(flat) - width + 1 :] if tail else flat[: width - 1] + "…"


def paragraphs(text: str) -> str:
    """Joins the lines of each paragraph of a docstring, to be wrapped again; paragraphs with indented lines stay as
    they are."""
    found = []
    for block in text.split("\n\n"):
        lines = block.split("\n")
        found.append(block if any(line.startswith(" ") for line in lines) else " ".join(lines))
    return "\n\n".join(found)
