"""An index of the methods' files that can be read without importing them: names, papers, formulas, parts, claims.

Importing methods means importing torch. index.json holds their contents at the last run of `python -m polopt.index`;
the entry of a method whose files have changed since is rebuilt from them.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from pathlib import Path
from typing import Any

from polopt import catalogue
from polopt.claim import ClaimKind
from polopt.method import KINDS, Kind, Paper, Tier
from polopt.tags import Tag

FILE = Path(__file__).with_name("index.json")


@dataclasses.dataclass(frozen=True)
class Entry:
    """The index entry of a method. kind: of the object it builds. settings: name and default. sentence: the `outline`
    of its part with the paper's settings: depth, name, value. claims: name, kind, statement. tags: axis and tag, see
    `polopt.tags`. digest: of its files."""

    slug: str
    room: str
    kind: Kind
    tier: Tier
    changes: str
    paper: Paper
    doc: str
    settings: tuple[tuple[str, str], ...]
    sentence: tuple[tuple[int, str, str], ...]
    claims: tuple[tuple[str, ClaimKind, str], ...]
    tags: tuple[Tag, ...]
    digest: str

    def matches(self, text: str) -> bool:
        """Tests whether every word of the text is in the method's name, room, kind, tier, title or `changes`."""
        found = " ".join([self.slug, self.room, self.kind, self.tier, self.paper.title, self.changes]).lower()
        return all(word in found for word in text.lower().split())


def entries() -> list[Entry]:
    """Returns the entries of all methods, by name."""
    return [entry(slug) for slug in catalogue.slugs()]


def slugs(kind: Kind | None = None) -> list[str]:
    """Returns the names of all methods, or of those of one kind.

    Raises:
        ValueError: there is no such kind of method.
    """
    if kind is None:
        return catalogue.slugs()
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, found {kind!r:.60}")
    return [found.slug for found in entries() if found.kind == kind]


def entry(name: str) -> Entry:
    """Returns the entry of one method.

    Raises:
        UnknownMethod: as `catalogue.find`.
    """
    slug = catalogue.slug_of(name)
    stored = _stored().get(slug)
    if stored is None or "tags" not in stored or stored["digest"] != digest(slug):
        return made(slug)
    pairs = {key: tuple(tuple(pair) for pair in stored[key]) for key in ("settings", "sentence", "claims", "tags")}
    return Entry(**{**stored, **pairs, "paper": Paper(**stored["paper"])})


def made(slug: str) -> Entry:
    """Builds the entry from the method's current files."""
    from polopt.outline import outline
    from polopt.tagging import tags_of

    m = catalogue.find(slug)
    built = m()
    return Entry(
        slug=m.slug,
        room=m.room,
        kind=m.kind,
        tier=m.tier,
        changes=m.changes,
        paper=m.paper,
        doc=m.doc,
        settings=tuple((name, repr(value)) for name, value in m.settings().items()),
        sentence=tuple(outline(built)),
        claims=tuple((claim.name, claim.kind, claim.statement) for claim in catalogue.claims_of(m.slug)),
        tags=tags_of(built),
        digest=digest(m.slug),
    )


def digest(slug: str) -> str:
    """Hashes the files of a method and of its claims, independently of line endings."""
    text = "".join(file.read_text(encoding="utf-8") for file in catalogue.files_of(slug))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def text() -> str:
    """Returns the current contents of index.json."""
    found = {slug: dataclasses.asdict(made(slug)) for slug in catalogue.slugs()}
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


@functools.cache
def _stored() -> dict[str, Any]:
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
