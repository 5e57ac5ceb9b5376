"""Docstrings of methods as HTML: paragraphs, lists, formulas as MathML, all else as it stands."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Iterator, Set
from typing import Literal

from docs_site.formulas import NotationError, mathml

# In a sentence: where a formula may begin, and where it may end.
_BEGIN = re.compile(r"(?:(?<=^)|(?<=[.,;:] )|(?<=\band )|(?<=[Ww]ith ))(?=[A-Za-z][\w']*(?:\([^()]*\))? = )")
_END = re.compile(r"(?=[.,;:] )|(?=[.,;:]$)|$|(?= (?:and|with|where|over|for|if|on|by) )")


@dataclasses.dataclass(frozen=True)
class Chunk:
    """A paragraph or an indented block. lines: of the block, without its indentation."""

    kind: Literal["paragraph", "block"]
    lines: tuple[str, ...]


def chunks(doc: str) -> Iterator[Chunk]:
    """Yields the paragraphs and blocks of a docstring; a block is indented after a blank line."""
    for text in re.split(r"\n\s*\n", doc.strip("\n")):
        lines = text.split("\n")
        margin = min(len(line) - len(line.lstrip()) for line in lines)
        if lines[0].startswith("    "):
            # A paragraph may follow a block without a blank line.
            inside = next((i for i, line in enumerate(lines) if not line.startswith("    ")), len(lines))
            margin = min(len(line) - len(line.lstrip()) for line in lines[:inside])
            yield Chunk("block", tuple(line[margin:] for line in lines[:inside]))
            lines = lines[inside:]
        if lines:
            yield Chunk("paragraph", tuple(lines))


def formulas(block: Chunk, settings: Set[str] = frozenset()) -> list[str] | None:
    """Returns the formulas of a block, one a line or over several; None unless all of its lines are in the notation."""
    units: list[str] = []
    for line in block.lines:
        goes_on = units and (line.startswith(" ") or units[-1].count("(") > units[-1].count(")"))
        if goes_on or (units and re.match(r"[-+*/=<>] ", line)):
            units[-1] += " " + line.strip()
        else:
            units.append(line.rstrip())
    try:
        return [mathml(unit, settings, prose=True, block=True) for unit in units]
    except NotationError:
        return None


def inline(text: str, settings: Set[str] = frozenset()) -> str:
    """Returns a sentence as HTML: `code`, and formulas that stand between its words."""
    pieces = re.split(r"(`[^`]+`)", text)
    return "".join(
        f"<code>{html.escape(piece[1:-1])}</code>" if number % 2 else _with_formulas(piece, settings)
        for number, piece in enumerate(pieces)
    )


def _with_formulas(text: str, settings: Set[str]) -> str:
    out, at = "", 0
    for begin in _BEGIN.finditer(text):
        if begin.start() < at:
            continue
        ends = [end.start() for end in _END.finditer(text, begin.start() + 1)]
        for end in reversed(ends):
            candidate = text[begin.start() : end]
            if re.search(r"[.;:] |[.,;:]$", candidate):
                continue
            try:
                found = mathml(candidate, settings)
            except NotationError:
                continue
            out += html.escape(text[at : begin.start()], quote=False) + found
            at = end
            break
    return out + html.escape(text[at:], quote=False)


def as_html(doc: str, settings: Set[str] = frozenset()) -> str:
    """Returns a docstring as HTML."""
    return "\n".join(_chunk_html(chunk, settings) for chunk in chunks(doc))


def _chunk_html(chunk: Chunk, settings: Set[str]) -> str:
    if chunk.kind == "block":
        found = formulas(chunk, settings)
        if found is None:
            return f'<pre class="notation"><code>{html.escape(chr(10).join(chunk.lines), quote=False)}</code></pre>'
        return "\n".join(f'<div class="formula">{one}</div>' for one in found)
    if chunk.lines[0].startswith("- "):
        entries = " ".join(line.strip() if not line.startswith("- ") else f"\n{line[2:]}" for line in chunk.lines)
        rows = "".join(f"<li>{inline(entry.strip(), settings)}</li>" for entry in entries.strip().split("\n"))
        return f"<ul>{rows}</ul>"
    return f"<p>{inline(' '.join(line.strip() for line in chunk.lines), settings)}</p>"
