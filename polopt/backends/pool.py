"""Where learners that know nothing else of each other leave their answers for one another."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import pydantic

from polopt.part import Part

# A publication that a pool reads is no larger than this: bytes, groups, rows of a group, turns of a row.
MOST_BYTES, MOST_GROUPS, MOST_ROWS, MOST_TURNS = 2**26, 4096, 4096, 1024
NODE, FILE = re.compile(r"\w[\w.-]{0,99}"), re.compile(r"[0-9]{8,12}\.json")


@dataclasses.dataclass(frozen=True)
class PublishedGroup:
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
    stopped and goes on from an earlier checkpoint repeats itself instead of adding to what it said. `skipped` counts
    the publications that `read` has passed over, since nobody could learn from them.
    """

    skipped = 0

    def publish(self, node: str, number: int, groups: Sequence[PublishedGroup]) -> None:
        """Make a batch known, all of it at once."""
        raise NotImplementedError

    def nodes(self) -> list[str]:
        """Who has published, in the order of their names."""
        raise NotImplementedError

    def read(self, node: str, newest: int, before: int | None = None) -> dict[int, list[PublishedGroup]]:
        """A node's last `newest` batches, of lower numbers than `before` if it is given, by their numbers."""
        raise NotImplementedError

    def discard(self, node: str, before: int) -> None:
        """Forget a node's batches of lower numbers."""
        raise NotImplementedError


class LocalPool(Pool):
    """A pool inside this process, under a name: for tests, and for learners that take turns."""

    name: str = "pool"

    def _batches(self) -> dict[str, dict[int, list[PublishedGroup]]]:
        return _LOCAL.setdefault(self.name, {})

    def publish(self, node: str, number: int, groups: Sequence[PublishedGroup]) -> None:
        self._batches().setdefault(node, {})[number] = list(groups)

    def nodes(self) -> list[str]:
        return sorted(self._batches())

    def read(self, node: str, newest: int, before: int | None = None) -> dict[int, list[PublishedGroup]]:
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
_LOCAL: dict[str, dict[str, dict[int, list[PublishedGroup]]]] = {}


class FolderPool(Pool):
    """A pool in a folder that several processes of one machine see: a file for each batch of each node.

    A file is written beside its place and then renamed, so a reader sees all of it or nothing, whoever writes at that
    moment and whenever a writer is killed. Each node writes and deletes its own files alone.

    Whoever may write to the folder may write anything. What is no plain file of a plain name, is too large, or holds no
    publication (see `groups_of`) is passed over and counted in `skipped`.

    Raises:
        ValueError: a node's name that is no plain file name; a publication of one's own that others would pass over.
    """

    path: str

    def publish(self, node: str, number: int, groups: Sequence[PublishedGroup]) -> None:
        home = self._home(node)
        content = json.dumps([dataclasses.asdict(group) for group in groups], ensure_ascii=False).encode()
        if len(content) > MOST_BYTES:
            raise ValueError(
                f"backends.FolderPool: a batch has {len(content)} bytes, and a publication at most {MOST_BYTES}; make "
                "batches or answers smaller"
            )
        home.mkdir(parents=True, exist_ok=True)
        draft, place = home / f".{number:08d}.{os.getpid()}.draft", home / f"{number:08d}.json"
        try:
            with draft.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(place)
        finally:
            draft.unlink(missing_ok=True)

    def nodes(self) -> list[str]:
        return sorted(
            entry.name
            for entry in _entries(Path(self.path))
            if NODE.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
        )

    def read(self, node: str, newest: int, before: int | None = None) -> dict[int, list[PublishedGroup]]:
        home, batches = self._home(node), dict[int, list[PublishedGroup]]()
        for number in _last(self._numbers(home), newest, before):
            try:
                batches[number] = groups_of(_content(home / f"{number:08d}.json"))
            except FileNotFoundError:
                continue  # its node has just discarded it
            except (OSError, ValueError):
                self.skipped += 1
        return batches

    def discard(self, node: str, before: int) -> None:
        home = self._home(node)
        for number in self._numbers(home):
            if number < before:
                (home / f"{number:08d}.json").unlink(missing_ok=True)

    def _home(self, node: str) -> Path:
        if not NODE.fullmatch(node):
            raise ValueError(
                f"backends.FolderPool: node {node!r:.120} must be a plain name, of letters, digits, _, - and ."
            )
        return Path(self.path) / node

    @staticmethod
    def _numbers(home: Path) -> list[int]:
        return [] if home.is_symlink() else [int(e.name[:-5]) for e in _entries(home) if FILE.fullmatch(e.name)]


def _last(numbers: Iterable[int], newest: int, before: int | None) -> list[int]:
    return sorted(n for n in numbers if before is None or n < before)[-newest:]


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []  # there is no such folder, or it is not for us


def _content(path: Path) -> bytes:
    """The bytes of a plain file, never of a link, a device or a pipe, which may hold or never end.

    Raises:
        OSError: it is none, or it is too large.
    """
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(file, "rb") as opened:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode) or about.st_size > MOST_BYTES:
            raise OSError(f"{path} is no plain file of at most {MOST_BYTES} bytes")
        return opened.read(MOST_BYTES)


Finite = Annotated[float, pydantic.Field(allow_inf_nan=False)]
Row = Annotated[list[str], pydantic.Field(min_length=1, max_length=MOST_TURNS)]
Token = Annotated[int, pydantic.Field(ge=0, lt=2**31)]
Tokens = Annotated[list[Token], pydantic.Field(min_length=1)]
LogP = Annotated[float, pydantic.Field(le=0, allow_inf_nan=False)]


class _Group(pydantic.BaseModel):
    """What `PublishedGroup` must be to be learned from."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    task: Annotated[int, pydantic.Field(ge=0, lt=2**63)]
    name: str
    answers: Annotated[list[Row], pydantic.Field(max_length=MOST_ROWS)]
    outcomes: list[Finite]
    about: dict[str, Any] = {}
    ids: list[list[Tokens]] | None = None
    logp: list[list[LogP]] | None = None
    temperature: Annotated[float, pydantic.Field(gt=0, allow_inf_nan=False)] = 1.0

    @pydantic.model_validator(mode="after")
    def _of_one_length(self) -> _Group:
        rows = len(self.answers)
        if len(self.outcomes) != rows or (self.ids is None) != (self.logp is None):
            raise ValueError("every row has one outcome, and tokens come with their log-probabilities")
        if self.ids is not None and self.logp is not None:
            if not rows == len(self.ids) == len(self.logp):
                raise ValueError("every row has its tokens and log-probabilities")
            for turns, ids, logp in zip(self.answers, self.ids, self.logp, strict=True):
                if len(turns) != len(ids) or sum(map(len, ids)) != len(logp):
                    raise ValueError("every turn has its tokens, and every token its log-probability")
        return self


_PUBLICATION = pydantic.TypeAdapter(Annotated[list[_Group], pydantic.Field(max_length=MOST_GROUPS)])


def groups_of(content: bytes) -> list[PublishedGroup]:
    """The groups of a publication, in JSON: every field of its type, numbers finite, log-probabilities at most 0, as
    many of each as there are rows, turns and tokens.

    Raises:
        ValueError: it is none.
    """
    return [PublishedGroup(**dict(group)) for group in _PUBLICATION.validate_json(content)]
