"""A persistent cache of a model's replies, so that each request is paid for once."""

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
    """A model's reply.

    text: the generated text.
    tokens: its cost, request and reply together.
    """

    text: str
    tokens: int


class Spent(NamedTuple):
    """The total cost of stored replies.

    calls: number of replies.
    tokens: their tokens together.
    """

    calls: int
    tokens: int


def content_key(content: Mapping[str, Any]) -> str:
    """Returns a hash of a request, the same in every process."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


class Replies:
    """A cache of replies by the hash of the request, in a SQLite file that several processes may share, or in memory.

    The cache is also the ledger of the budget: every stored reply has been paid for.
    """

    def __init__(self, path: str | None = None) -> None:
        self.path = path
        self._stored: dict[str, Reply] = {}

    def known(self, keys: Iterable[str]) -> dict[str, Reply]:
        """Returns the stored replies of these keys, without the keys that have none."""
        keys = list(keys)
        if self.path is None:
            return {key: self._stored[key] for key in keys if key in self._stored}
        found: dict[str, Reply] = {}
        with self._open() as base:
            for at in range(0, len(keys), AT_ONCE):
                some = keys[at : at + AT_ONCE]
                query = f"SELECT key, text, tokens FROM replies WHERE key IN ({','.join('?' * len(some))})"
                found |= {key: Reply(text, tokens) for key, text, tokens in base.execute(query, some)}
        return found

    def keep(self, key: str, reply: Reply) -> None:
        """Writes a reply before returning; an existing reply is kept, so that concurrent processes read the same."""
        if self.path is None:
            self._stored.setdefault(key, reply)
            return
        with self._open() as base:
            base.execute("INSERT OR IGNORE INTO replies VALUES (?, ?, ?)", (key, *reply))

    def spent(self) -> Spent:
        """Returns the total cost of all stored replies."""
        if self.path is None:
            return Spent(len(self._stored), sum(reply.tokens for reply in self._stored.values()))
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
