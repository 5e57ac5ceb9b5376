"""The score of a control policy: returns of whole episodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from polopt.metrics import Interval


@dataclasses.dataclass(frozen=True)
class ReturnScore:
    """The mean undiscounted return over episodes, with its interval. rules: those of rules, by name."""

    returns: list[float]
    lengths: list[int]
    interval: Interval
    rules: Mapping[str, ReturnScore] = dataclasses.field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Returns the score as written to evaluations.jsonl."""
        interval = self.interval
        estimate = {"estimate": interval.estimate, "low": interval.low, "high": interval.high, "unit": "return"}
        lengths = sum(self.lengths) / len(self.lengths)
        found = {"problems": len(self.returns), "return": estimate, "length/mean": lengths, "returns": self.returns}
        return found | ({"rules": {n: rule.record() for n, rule in self.rules.items()}} if self.rules else {})
