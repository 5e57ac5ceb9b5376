"""Test cases, the properties that they must satisfy, and violations with the code that reproduces them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from polopt.checks.calls import CallResult, PartCall

# The result of each call, by its name.
Results = Callable[[str], CallResult]


def quoted(text: str) -> str:
    """Formats a string as code, in double quotes."""
    return json.dumps(text, ensure_ascii=False)


class CodeWriter(Protocol):
    """Writes the outputs of a call as expressions of a script."""

    def value(self, call: str) -> str: ...

    def grad(self, call: str, name: str) -> str: ...

    def metric(self, call: str, name: str) -> str: ...

    def batch(self, call: str) -> str: ...

    def kept(self, call: str) -> str: ...


@dataclasses.dataclass(frozen=True)
class Reference:
    """A reference to a call's output: its value, a leaf's gradient, a metric, its input batch, or the rows it kept."""

    call: str
    what: Literal["value", "grad", "metric", "batch", "kept"] = "value"
    name: str = ""

    def write(self, writer: CodeWriter) -> str:
        return getattr(writer, self.what)(self.call, *([self.name] if self.name else []))


class Code:
    """An expression of a script: text and references to outputs of calls, in turn."""

    def __init__(self, *parts: str | Reference) -> None:
        self.parts = parts

    def write(self, writer: CodeWriter) -> str:
        return "".join(part if isinstance(part, str) else part.write(writer) for part in self.parts)

    @classmethod
    def joined(cls, sign: str, references: Sequence[Reference], before: str = "", after: str = "") -> Code:
        parts: list[str | Reference] = [before]
        for i, reference in enumerate(references):
            parts += [sign, reference] if i else [reference]
        return cls(*parts, after)


class Violation(AssertionError):
    """A property that does not hold.

    about: the kind of violation, the same for every batch on which it occurs.
    found, expected: expressions of a script.
    check: the assertion over the names `found` and `expected`; empty if evaluating `found` raises already.
    """

    def __init__(self, sentence: str, about: str, found: Code, expected: Code | None = None, check: str = "") -> None:
        super().__init__(sentence)
        self.sentence, self.about = sentence, about
        self.found, self.expected, self.check = found, expected, check

    def under(self, way: str) -> Violation:
        """Returns a copy with the test case's description in front of the sentence."""
        sentence = f"{way}: {self.sentence}" if way else self.sentence
        return Violation(sentence, self.about, self.found, self.expected, self.check)


class Property(Protocol):
    """A property of the results of named calls."""

    def check(self, results: Results) -> None:
        """Raises Violation where the property does not hold."""
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class TestCase:
    """Calls, and the properties that must hold of their results.

    way: a description of the case among those of its check.
    part_of: the description of a coarser case of the same check, which this one narrows down.
    refusable: the part may refuse the batch.
    """

    way: str
    calls: dict[str, PartCall]
    laws: Sequence[Property]
    part_of: str = ""
    refusable: bool = False


@dataclasses.dataclass(frozen=True)
class Failure:
    """A failure in a sentence.

    trial, broken: the smallest failing example that was found, and the property that it violates.
    rule: the name of a function of `polopt.checks.state`, for a failure that no batch causes.
    """

    sentence: str
    trial: TestCase | None = None
    broken: Violation | None = None
    rule: str = ""
