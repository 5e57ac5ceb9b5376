"""Trials, the laws that they are held to, and what is said and shown of a law that does not hold."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from polopt.checks.calls import CallResult, PartCall

Told = Callable[[str], CallResult]


def quoted(text: str) -> str:
    """A string as code, in double quotes."""
    return json.dumps(text, ensure_ascii=False)


class CodeWriter(Protocol):
    """How an outcome is written in a script."""

    def value(self, call: str) -> str: ...

    def grad(self, call: str, name: str) -> str: ...

    def metric(self, call: str, name: str) -> str: ...

    def batch(self, call: str) -> str: ...

    def kept(self, call: str) -> str: ...


@dataclasses.dataclass(frozen=True)
class Reference:
    """What a call said: its value, a leaf's gradient, a metric; or the batch it was given, or the rows it kept."""

    call: str
    what: Literal["value", "grad", "metric", "batch", "kept"] = "value"
    name: str = ""

    def write(self, voice: CodeWriter) -> str:
        return getattr(voice, self.what)(self.call, *([self.name] if self.name else []))


class Code:
    """An expression of a script: text, and what calls said, in turn."""

    def __init__(self, *parts: str | Reference) -> None:
        self.parts = parts

    def write(self, voice: CodeWriter) -> str:
        return "".join(part if isinstance(part, str) else part.write(voice) for part in self.parts)

    @classmethod
    def joined(cls, sign: str, said: Sequence[Reference], before: str = "", after: str = "") -> Code:
        parts: list[str | Reference] = [before]
        for i, one in enumerate(said):
            parts += [sign, one] if i else [one]
        return cls(*parts, after)


class Violation(AssertionError):
    """A law that does not hold.

    about: what of the outcome is wrong, the same for every batch on which it is. found, expected: expressions of a
    script. check: the assertion over the names `found` and `expected`; none if finding it is error enough.
    """

    def __init__(self, sentence: str, about: str, found: Code, expected: Code | None = None, check: str = "") -> None:
        super().__init__(sentence)
        self.sentence, self.about = sentence, about
        self.found, self.expected, self.check = found, expected, check

    def under(self, way: str) -> Violation:
        """The same, with the trial's way in front of the sentence."""
        sentence = f"{way}: {self.sentence}" if way else self.sentence
        return Violation(sentence, self.about, self.found, self.expected, self.check)


class Property(Protocol):
    """Something that holds of the outcomes of named calls."""

    def check(self, told: Told) -> None:
        """Raises Violation where it does not hold."""
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class TestCase:
    """Calls, and what must hold of them.

    way: which one of a check's trials this is, in words. part_of: the way of a coarser trial of the same check, to
    which this one is the closer look. refusable: its batch is one that a part may refuse.
    """

    way: str
    calls: dict[str, PartCall]
    laws: Sequence[Property]
    part_of: str = ""
    refusable: bool = False


@dataclasses.dataclass(frozen=True)
class Failure:
    """What is wrong, in a sentence. trial, broken: the smallest example that was found, and the law that it breaks.
    rule: the name of a function of `polopt.checks.state`, where no batch is to blame."""

    sentence: str
    trial: TestCase | None = None
    broken: Violation | None = None
    rule: str = ""
