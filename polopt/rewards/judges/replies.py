"""What a model has already answered: paid once, read again for ever."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

TABLE = "CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, text TEXT NOT NULL, tokens INTEGER NOT NULL)"
AT_ONCE = 500  # keys in one query


class Reply(NamedTuple):
    """text: what the model said. tokens: what it cost, question and answer together."""

    text: str
    tokens: int


class Spent(NamedTuple):
    """calls: replies that were paid. tokens: theirs together."""

    calls: int
    tokens: int


def content_key(content: Mapping[str, Any]) -> str:
    """A hash of what is asked, the same in every process."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


class Replies:
    """Replies by the hash of what was asked, in a SQLite file that several processes may share, or in memory.

    It is the ledger too: what stands in it was paid.
    """

    def __init__(self, path: str | None = None) -> None:
        self.path = path
        self._held: dict[str, Reply] = {}

    def known(self, keys: Iterable[str]) -> dict[str, Reply]:
        """Those of the keys that have a reply."""
        keys = list(keys)
        if self.path is None:
            return {key: self._held[key] for key in keys if key in self._held}
        found: dict[str, Reply] = {}
        with self._open() as base:
            for at in range(0, len(keys), AT_ONCE):
                some = keys[at : at + AT_ONCE]
                query = f"SELECT key, text, tokens FROM replies WHERE key IN ({','.join('?' * len(some))})"
                found |= {key: Reply(text, tokens) for key, text, tokens in base.execute(query, some)}
        return found

    def keep(self, key: str, reply: Reply) -> None:
        """Written before it returns. A reply that is there already stays: two processes then read the same."""
        if self.path is None:
            self._held.setdefault(key, reply)
            return
        with self._open() as base:
            base.execute("INSERT OR IGNORE INTO replies VALUES (?, ?, ?)", (key, *reply))

    def spent(self) -> Spent:
        """What all that stands here has cost."""
        if self.path is None:
            return Spent(len(self._held), sum(reply.tokens for reply in self._held.values()))
        with self._open() as base:
            count, tokens = base.execute("SELECT COUNT(*), COALESCE(SUM(tokens), 0) FROM replies").fetchone()
        return Spent(count, tokens)

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        assert self.path is not None
        Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        try:
            base = sqlite3.connect(self.path, timeout=30.0)
            try:
                with base:
                    base.execute(TABLE)
                    yield base
            finally:
                base.close()
        except sqlite3.DatabaseError as error:
            raise ValueError(f"{self.path} is no file of replies ({error}); name another, or delete it") from None
