"""What is asked of a scorer, and what it answers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple


class Request(NamedTuple):
    """An answer to judge. scorer: which one, as plain data (`scorers.build`). row: what it reads of the task."""

    scorer: Mapping[str, Any]
    row: Mapping[str, Any]
    answer: str


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A scorer's judgement. value: NaN where there is none. raised: the exception, as text, that it ended with. odd:
    the repr of what it returned, if that is no number. lost: why there is no judgement (timeout, memory, died)."""

    value: float = math.nan
    raised: str | None = None
    odd: str | None = None
    lost: str | None = None

    @classmethod
    def read(cls, line: Mapping[str, Any]) -> Verdict:
        """A verdict from a worker's line.

        Raises:
            ValueError: it is none.
        """
        ((name, value),) = line.items()
        if name == "value" and type(value) in (int, float):
            return cls(value=float(value))
        if name == "raised" and isinstance(value, str):
            return cls(raised=value)
        if name == "odd" and isinstance(value, str):
            return cls(odd=value)
        if line == {"lost": "memory"}:
            return cls(lost="memory")
        raise ValueError(f"{line!s:.60} is no verdict")
