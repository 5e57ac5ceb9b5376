"""Worlds of a recipe whose tasks are rows of a user's files."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from polopt.packages import path_of
from polopt.worlds.dataset import DatasetReader
from polopt.worlds.pairs import PairReader
from polopt.worlds.protocol import TaskSplit
from polopt.worlds.verifiers import computing, make_verifier
from polopt.worlds.world import World


class DatasetWorld(World):
    """Tasks from a data file, see `DatasetReader` for how its rows are read and their answers scored; `path` is a file,
    or package:NAME/FILE for a file of an installed package; `heldout` is a fraction of its prompts, or a second file.
    """

    kind: Literal["dataset"] = "dataset"
    path: str
    verifier: Any = "exact"
    heldout: float | str = 0.1
    prompt: str = "prompt"
    answer: str = "answer"
    solution: str | None = None
    answer_after: str | None = None
    system: str | None = None
    kind_field: str | None = None

    def check(self, where: str) -> None:
        make_verifier(self.verifier, f"{where}.verifier")

    def build(self, seed: int) -> TaskSplit:
        names = ("prompt", "answer", "solution", "answer_after", "system")
        settings = {name: getattr(self, name) for name in names}
        reader = DatasetReader(self.verifier, kind=self.kind_field, **settings)
        heldout = path_of(self.heldout, "heldout") if isinstance(self.heldout, str) else self.heldout
        return reader.split(path_of(self.path, "path"), heldout=heldout, seed=seed)

    def computing(self) -> str | None:
        return computing(self.verifier)


class PairsWorld(World):
    """Preference pairs from a data file, see `PairReader` for how its rows are read; `path` is a file, or
    package:NAME/FILE for a file of an installed package; `heldout` is a fraction of its prompts, or a second file."""

    verified: ClassVar[bool] = False

    kind: Literal["pairs"] = "pairs"
    path: str
    heldout: float | str = 0.1
    prompt: str = "prompt"
    chosen: str = "chosen"
    rejected: str = "rejected"
    system: str | None = None
    kind_field: str | None = None

    def build(self, seed: int) -> TaskSplit:
        names = ("prompt", "chosen", "rejected", "system")
        reader = PairReader(kind=self.kind_field, **{name: getattr(self, name) for name in names})
        heldout = path_of(self.heldout, "heldout") if isinstance(self.heldout, str) else self.heldout
        return reader.split(path_of(self.path, "path"), heldout=heldout, seed=seed)

    def computing(self) -> str | None:
        return self.kind
