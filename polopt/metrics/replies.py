"""Logged replies and how their readers responded: for better, not at all, or for worse."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polopt.metrics.row_format import MetricDataError, RowFormat, column_names, name_in, number_in

Numbers = NDArray[np.float64]
OUTCOMES = ("corrective", "neutral", "backfire")
COLUMNS = ("context", "reply", "outcome", "behaviour_probability")


@dataclasses.dataclass(frozen=True, eq=False)
class LoggedReplies:
    """N replies; arrays or lists, [N] each.

    context: names of what a policy may read. reply: name of the kind of reply that was given. outcome: corrective,
    neutral or backfire. probability: of the reply under the policy that gave it, which may have read more; in (0, 1].

    Raises:
        MetricDataError: arrays of different lengths or without rows, another outcome, or no such probability.
    """

    context: Any
    reply: Any
    outcome: Any
    probability: Any

    def __post_init__(self) -> None:
        for name in ("context", "reply", "outcome"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), str))
        object.__setattr__(self, "probability", np.asarray(self.probability, float))
        shapes = {f.name: getattr(self, f.name).shape for f in dataclasses.fields(self)}
        n = self.context.size
        if not n or any(shape != (n,) for shape in shapes.values()):
            raise MetricDataError(f"LoggedReplies: every column must be [N] with N >= 1, found {shapes}")
        if not np.isin(self.outcome, OUTCOMES).all():
            raise MetricDataError(f"LoggedReplies: outcome must be one of {', '.join(OUTCOMES)}")
        if not ((self.probability > 0) & (self.probability <= 1)).all():
            raise MetricDataError("LoggedReplies: probability must be in (0, 1]")

    def __len__(self) -> int:
        return len(self.context)

    def __getitem__(self, rows: Sequence[int] | NDArray[Any]) -> LoggedReplies:
        return LoggedReplies(**{f.name: getattr(self, f.name)[rows] for f in dataclasses.fields(self)})

    def halves(self, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the rows of two random halves, each in an order that does not depend on that of the file."""
        keys: list[tuple[bytes, int]] = []
        seen: dict[str, int] = {}
        for row, cells in enumerate(zip(self.context, self.reply, self.outcome, self.probability, strict=True)):
            text = repr([*map(str, cells[:3]), round(float(cells[3]), 9)])
            seen[text] = seen.get(text, 0) + 1  # equal rows can change places
            keys.append((hashlib.blake2b(f"{seed} {seen[text]} {text}".encode()).digest(), row))
        order = np.array([row for _, row in sorted(keys)])
        return order[::2], order[1::2]


def reply_row(row: Mapping[str, Any], columns: Mapping[str, str] | None = None) -> tuple[str, str, str, float]:
    """Checks one reply of a file.

    Raises:
        MetricDataError: a column that is missing, another outcome, or no probability in (0, 1].
    """
    names = column_names(COLUMNS, columns)
    context, reply, outcome = (name_in(row, names[name]) for name in COLUMNS[:3])
    if outcome.lower() not in OUTCOMES:
        raise MetricDataError(f"{names['outcome']} must be one of {', '.join(OUTCOMES)}, found {outcome!r:.60}")
    p = number_in(row, names["behaviour_probability"]) or 0.0
    if not 0 < p <= 1:
        raise MetricDataError(f"{names['behaviour_probability']} must be in (0, 1], found {p:g}")
    return context, reply, outcome.lower(), p


def logged_replies(rows: Iterable[tuple[int, tuple[str, str, str, float]]]) -> LoggedReplies:
    """Assembles replies.

    Raises:
        MetricDataError: there are no rows.
    """
    found = [row for _, row in rows]
    if not found:
        raise MetricDataError("there are no replies; give one a row")
    return LoggedReplies(*zip(*found, strict=True))


REPLY_ROWS = RowFormat("replies and responses to them", COLUMNS, reply_row, logged_replies)
