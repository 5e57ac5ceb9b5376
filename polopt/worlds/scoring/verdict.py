"""Requests to a scorer, and its verdicts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple


class Request(NamedTuple):
    """An answer to score.

    scorer: the scorer as plain data (`scorers.build`).
    row: the fields of the task that the scorer reads.
    """

    scorer: Mapping[str, Any]
    row: Mapping[str, Any]
    answer: str


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A scorer's result for one answer.

    value: NaN where there is none.
    raised: the exception that the scorer raised, as text.
    odd: the repr of a returned value that is no number.
    lost: the reason why there is no result (timeout, memory, died).
    """

    value: float = math.nan
    raised: str | None = None
    odd: str | None = None
    lost: str | None = None

    @classmethod
    def read(cls, line: Mapping[str, Any]) -> Verdict:
        """Parses a verdict from a worker's line.

        Raises:
            ValueError: the line is no verdict.
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
