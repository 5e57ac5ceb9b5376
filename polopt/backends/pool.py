"""Pools in which otherwise independent learners publish their answers for each other."""

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
    """A published group of answers to one task.

    task: the task's number.
    name: a name of the task that is the same in every process.
    answers: of each row, the text of each of its turns.
    outcomes: each row's outcome in the publisher's environment.
    about: further information.
    ids: of each row and turn the tokens, None if they are not published.
    logp: of each row the log-probabilities with which its decisions were sampled, in order, None if they are not
        published.
    temperature: the sampling temperature.
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
    """A store in which nodes publish batches and read those of other nodes.

    A node numbers its batches from 0; publishing a number again replaces the earlier batch, so that a node that resumes
    from an earlier checkpoint repeats its publications instead of adding to them. `skipped` counts the publications
    that `read` has passed over as invalid.
    """

    skipped = 0

    def publish(self, node: str, number: int, groups: Sequence[PublishedGroup]) -> None:
        """Publishes a batch of a node, all of it at once."""
        raise NotImplementedError

    def nodes(self) -> list[str]:
        """Returns the nodes that have published, sorted by name."""
        raise NotImplementedError

    def read(self, node: str, newest: int, before: int | None = None) -> dict[int, list[PublishedGroup]]:
        """Returns a node's last `newest` batches, by number; with `before`, only of lower numbers than that."""
        raise NotImplementedError

    def discard(self, node: str, before: int) -> None:
        """Deletes a node's batches of lower numbers than `before`."""
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
        """Deletes all batches of all nodes."""
        _LOCAL.pop(self.name, None)


# A module-level store, since copies of a part share a pool.
_LOCAL: dict[str, dict[str, dict[int, list[PublishedGroup]]]] = {}


class FolderPool(Pool):
    """A pool in a folder that several processes of one machine share: a file for each batch of each node.

    A file is written under a temporary name and then renamed, so a reader sees all of it or nothing, even if the writer
    is killed. Each node writes and deletes its own files alone.

    The folder's content is not trusted: entries that are not plain files with a plain name, are too large, or hold no
    valid publication (see `groups_of`) are passed over and counted in `skipped`.

    Raises:
        ValueError: a node's name is no plain file name; a publication of this process is larger than readers accept.
    """

    path: str

    def publish(self, node: str, number: int, groups: Sequence[PublishedGroup]) -> None:
        folder = self._folder(node)
        content = json.dumps([dataclasses.asdict(group) for group in groups], ensure_ascii=False).encode()
        if len(content) > MOST_BYTES:
            raise ValueError(
                f"backends.FolderPool: a batch has {len(content)} bytes, and a publication at most {MOST_BYTES}; make "
                "batches or answers smaller"
            )
        folder.mkdir(parents=True, exist_ok=True)
        draft, place = folder / f".{number:08d}.{os.getpid()}.draft", folder / f"{number:08d}.json"
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
        folder, batches = self._folder(node), dict[int, list[PublishedGroup]]()
        for number in _last(self._numbers(folder), newest, before):
            try:
                batches[number] = groups_of(_content(folder / f"{number:08d}.json"))
            except FileNotFoundError:
                continue  # its node has just discarded it
            except (OSError, ValueError):
                self.skipped += 1
        return batches

    def discard(self, node: str, before: int) -> None:
        folder = self._folder(node)
        for number in self._numbers(folder):
            if number < before:
                (folder / f"{number:08d}.json").unlink(missing_ok=True)

    def _folder(self, node: str) -> Path:
        if not NODE.fullmatch(node):
            raise ValueError(
                f"backends.FolderPool: node {node!r:.120} must be a plain name, of letters, digits, _, - and ."
            )
        return Path(self.path) / node

    @staticmethod
    def _numbers(folder: Path) -> list[int]:
        return [] if folder.is_symlink() else [int(e.name[:-5]) for e in _entries(folder) if FILE.fullmatch(e.name)]


def _last(numbers: Iterable[int], newest: int, before: int | None) -> list[int]:
    return sorted(n for n in numbers if before is None or n < before)[-newest:]


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []  # the folder does not exist or is not readable


def _content(path: Path) -> bytes:
    """Returns the bytes of a plain file; links, devices and pipes, which may block or never end, are refused.

    Raises:
        OSError: it is no plain file, or it is too large.
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
    """The validated form of a `PublishedGroup`."""

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
    """Returns the groups of a publication, in JSON, after validation.

    Every field has its type, numbers are finite, log-probabilities are at most 0, and the numbers of rows, turns and
    tokens agree.

    Raises:
        ValueError: the content is no such publication.
    """
    return [PublishedGroup(**dict(group)) for group in _PUBLICATION.validate_json(content)]
