"""The score of a control policy: returns of whole episodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from polopt.metrics import Interval


@dataclasses.dataclass(frozen=True)
class FrequencyScore:
    """Scores of a policy by the number of actions that it takes in turn after one look at the state.

    average: the frequency-averaged score, `metrics.frequency_averaged_score`.
    """

    scores: Mapping[int, ReturnScore]
    average: float

    def record(self) -> dict[str, Any]:
        """Returns the scores as written to evaluations.jsonl, without single episodes."""
        records = {str(length): score.record() for length, score in self.scores.items()}
        means = {length: {"return": record["return"]} for length, record in records.items()}
        return {"average": self.average, "lengths": means}


@dataclasses.dataclass(frozen=True)
class ReturnScore:
    """The mean undiscounted return over episodes, with its interval. rules: those of rules, by name. frequency: those
    of the policy with fewer looks at the state."""

    returns: list[float]
    lengths: list[int]
    interval: Interval
    rules: Mapping[str, ReturnScore] = dataclasses.field(default_factory=dict)
    frequency: FrequencyScore | None = None

    def record(self) -> dict[str, Any]:
        """Returns the score as written to evaluations.jsonl."""
        interval = self.interval
        estimate = {"estimate": interval.estimate, "low": interval.low, "high": interval.high, "unit": "return"}
        lengths = sum(self.lengths) / len(self.lengths)
        found = {"problems": len(self.returns), "return": estimate, "length/mean": lengths, "returns": self.returns}
        found |= {"rules": {n: rule.record() for n, rule in self.rules.items()}} if self.rules else {}
        return found | ({} if self.frequency is None else {"frequency": self.frequency.record()})
