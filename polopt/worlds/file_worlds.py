"""Worlds of a recipe whose tasks are rows of a user's files."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from polopt.packages import path_of
from polopt.worlds.dataset import DatasetReader
from polopt.worlds.labelled import LabelledReader, RankedReader
from polopt.worlds.pairs import PairReader
from polopt.worlds.protocol import TaskSplit
from polopt.worlds.rated import RatedReader
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


class RatedFileWorld(World):
    """Settings of worlds whose tasks are rows of a data file with answers of known quality; `path` is a file, or
    package:NAME/FILE for a file of an installed package; `heldout` is a fraction of its prompts, or a second file."""

    kind: str
    path: str
    heldout: float | str = 0.1
    prompt: str = "prompt"
    system: str | None = None
    kind_field: str | None = None

    def reader(self) -> RatedReader:
        """Returns the reader of its files."""
        raise NotImplementedError

    def build(self, seed: int) -> TaskSplit:
        heldout = path_of(self.heldout, "heldout") if isinstance(self.heldout, str) else self.heldout
        return self.reader().split(path_of(self.path, "path"), heldout=heldout, seed=seed)

    def computing(self) -> str | None:
        return self.kind

    @property
    def _common(self) -> dict[str, Any]:
        return {"prompt": self.prompt, "system": self.system, "kind": self.kind_field}


class PairsWorld(RatedFileWorld):
    """Preference pairs from a data file, see `PairReader` for how its rows are read; `path` is a file, or
    package:NAME/FILE for a file of an installed package; `heldout` is a fraction of its prompts, or a second file."""

    known: ClassVar[Literal["verified", "pairs", "labels"]] = "pairs"

    kind: Literal["pairs"] = "pairs"
    chosen: str = "chosen"
    rejected: str = "rejected"

    def reader(self) -> RatedReader:
        return PairReader(chosen=self.chosen, rejected=self.rejected, **self._common)


class RankedWorld(RatedFileWorld):
    """Ranked lists of answers from a data file, see `RankedReader` for how its rows are read; `path` and `heldout` as
    for `pairs`."""

    known: ClassVar[Literal["verified", "pairs", "labels"]] = "pairs"

    kind: Literal["ranked"] = "ranked"
    completions: str = "completions"
    scores: str = "scores"

    def reader(self) -> RatedReader:
        return RankedReader(completions=self.completions, scores=self.scores, **self._common)


class LabelledWorld(RatedFileWorld):
    """Single answers with a label or a score from a data file, see `LabelledReader` for how its rows are read; `path`
    and `heldout` as for `pairs`."""

    known: ClassVar[Literal["verified", "pairs", "labels"]] = "labels"

    kind: Literal["labelled"] = "labelled"
    completion: str = "completion"
    label: str = "label"

    def reader(self) -> RatedReader:
        return LabelledReader(completion=self.completion, label=self.label, **self._common)
