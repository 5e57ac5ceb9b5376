"""What a check found."""

from __future__ import annotations

import dataclasses
from typing import Literal

# choice: it does not hold, and by a rule that can be named, which somebody may have wanted.
Verdict = Literal["holds", "choice", "breaks"]


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """title: what was checked. said: what was found, in a sentence; short, in a word or two where the verdict alone
    says too much. why: why it matters. measured: named numbers. example: lines that show it, to paste and run."""

    title: str
    verdict: Verdict
    said: str = ""
    why: str = ""
    measured: dict[str, float] = dataclasses.field(default_factory=dict)
    example: str = ""
    short: str = ""
