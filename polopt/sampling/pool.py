"""Where learners that know nothing else of each other leave their answers for one another."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from polopt.part import Part


@dataclasses.dataclass(frozen=True)
class Shared:
    """A group of answers to one task, as whoever sampled it publishes it.

    task, name: the task's number, and a name that is the same in every process. answers: of each row, the text of each
    of its turns. outcomes: what the publisher's world paid. about: whatever else may be of use. ids, logp: of each row
    and turn the tokens, and of each row the log-probabilities with which its decisions were drawn, in order, where they
    are published; temperature is that of the drawing.
    """

    task: int
    name: str
    answers: list[list[str]]
    outcomes: list[float]
    about: dict[str, Any] = dataclasses.field(default_factory=dict)
    ids: list[list[list[int]]] | None = None
    logp: list[list[float]] | None = None
    temperature: float = 1.0


class Pool(Part):
    """What nodes publish, batch by batch, and read of each other.

    A node numbers its batches from 0; publishing a number again replaces what stood there, so that a node that was
    stopped and goes on from an earlier checkpoint repeats itself instead of adding to what it said.
    """

    def publish(self, node: str, number: int, groups: Sequence[Shared]) -> None:
        """Make a batch known, all of it at once."""
        raise NotImplementedError

    def nodes(self) -> list[str]:
        """Who has published, in the order of their names."""
        raise NotImplementedError

    def read(self, node: str, newest: int, before: int | None = None) -> dict[int, list[Shared]]:
        """A node's last `newest` batches, of lower numbers than `before` if it is given, by their numbers."""
        raise NotImplementedError

    def discard(self, node: str, before: int) -> None:
        """Forget a node's batches of lower numbers."""
        raise NotImplementedError


class LocalPool(Pool):
    """A pool inside this process, under a name: for tests, and for learners that take turns."""

    name: str = "pool"

    def _batches(self) -> dict[str, dict[int, list[Shared]]]:
        return _LOCAL.setdefault(self.name, {})

    def publish(self, node: str, number: int, groups: Sequence[Shared]) -> None:
        self._batches().setdefault(node, {})[number] = list(groups)

    def nodes(self) -> list[str]:
        return sorted(self._batches())

    def read(self, node: str, newest: int, before: int | None = None) -> dict[int, list[Shared]]:
        batches = self._batches().get(node, {})
        return {n: batches[n] for n in _last(batches, newest, before)}

    def discard(self, node: str, before: int) -> None:
        batches = self._batches().get(node, {})
        for number in [n for n in batches if n < before]:
            del batches[number]

    def clear(self) -> None:
        """Forget everything."""
        _LOCAL.pop(self.name, None)


# What a part's copies share cannot be the part's own.
_LOCAL: dict[str, dict[str, dict[int, list[Shared]]]] = {}


class FolderPool(Pool):
    """A pool in a folder that several processes of one machine see: a file for each batch of each node.

    A file is written beside its place and then renamed, so a reader sees all of it or nothing, whoever writes at that
    moment and whenever a writer is killed. Each node writes and deletes its own files alone.

    Raises:
        ValueError: a node's name that is no plain file name; a file in the folder that is no publication.
    """

    path: str

    def publish(self, node: str, number: int, groups: Sequence[Shared]) -> None:
        home = self._home(node)
        home.mkdir(parents=True, exist_ok=True)
        draft, place = home / f".{number:08d}.{os.getpid()}.draft", home / f"{number:08d}.json"
        try:
            with draft.open("w", encoding="utf-8") as file:
                json.dump([dataclasses.asdict(group) for group in groups], file, ensure_ascii=False)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(place)
        finally:
            draft.unlink(missing_ok=True)

    def nodes(self) -> list[str]:
        return sorted(p.name for p in Path(self.path).glob("*") if p.is_dir())

    def read(self, node: str, newest: int, before: int | None = None) -> dict[int, list[Shared]]:
        home, batches = self._home(node), dict[int, list[Shared]]()
        for number in _last(self._numbers(home), newest, before):
            with contextlib.suppress(FileNotFoundError):  # its node has just discarded it
                batches[number] = _groups(home / f"{number:08d}.json")
        return batches

    def discard(self, node: str, before: int) -> None:
        home = self._home(node)
        for number in self._numbers(home):
            if number < before:
                (home / f"{number:08d}.json").unlink(missing_ok=True)

    def _home(self, node: str) -> Path:
        if not re.fullmatch(r"\w[\w.-]*", node):
            raise ValueError(f"sampling.FolderPool: node {node!r} must be a plain name, of letters, digits, _, - and .")
        return Path(self.path) / node

    @staticmethod
    def _numbers(home: Path) -> list[int]:
        return [int(p.stem) for p in home.glob("*.json") if p.stem.isdigit()]


def _last(numbers: Iterable[int], newest: int, before: int | None) -> list[int]:
    return sorted(n for n in numbers if before is None or n < before)[-newest:]


def _groups(file: Path) -> list[Shared]:
    text = file.read_text(encoding="utf-8")
    try:
        return [Shared(**group) for group in json.loads(text)]
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file} is no publication of this version of polopt: {error}") from None
