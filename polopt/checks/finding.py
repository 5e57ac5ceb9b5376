"""The result of a check."""

from __future__ import annotations

import dataclasses
from typing import Literal

# choice: the property does not hold, by a rule that can be named and may be intended.
Verdict = Literal["holds", "choice", "breaks"]


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """The result of one check.

    title: the property that was checked.
    said: the result in a sentence.
    short: the result in a word or two, where the verdict alone is too coarse.
    why: why the property matters.
    measured: named numbers.
    example: lines that reproduce the failure, to paste and run.
    """

    title: str
    verdict: Verdict
    said: str = ""
    why: str = ""
    measured: dict[str, float] = dataclasses.field(default_factory=dict)
    example: str = ""
    short: str = ""
