"""A weighted sum of several verifiers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polopt.config import ConfigError
from polopt.worlds.functions import Row, VerifierError
from polopt.worlds.scoring.place import verdicts
from polopt.worlds.verifiers.python_functions import Function
from polopt.worlds.verifiers.verifier import Verifier, WorkerVerifier


class Weighted:
    """A weighted sum of verifiers: reward = sum_i weight_i * verify_i(completion, row).

    parts: (name, verifier, weight). The first part is the task and the others shape it: an answer is solved if the
        first part gives it 1 or more.
    """

    def __init__(self, parts: Sequence[tuple[str, Verifier, float]]) -> None:
        self.parts = _unique(parts)
        if not self.parts:
            raise ConfigError("verifier: at least one is needed, as in 'exact' or 'numeric'; found none")

    @property
    def together(self) -> bool:
        """True if many completions are better scored in one call of `judge_many`."""
        return any(getattr(verifier, "together", False) for _, verifier, _ in self.parts)

    @property
    def reads_answer(self) -> bool:
        """True if a part compares with `row["answer"]`."""
        return any(verifier.reads_answer for _, verifier, _ in self.parts)

    def warnings_for(self, rows: Sequence[Row]) -> list[str]:
        """Returns the warning sentences of all parts about these rows together."""
        return [found for _, verifier, _ in self.parts if (found := verifier.warning_for(rows))]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parts, in their order."""
        return tuple(name for name, _, _ in self.parts)

    def components(self, completion: str, row: Row) -> dict[str, float]:
        """Returns each part's value, unweighted, by name."""
        return {name: verifier.verify(completion, row) for name, verifier, _ in self.parts}

    def verify(self, completion: str, row: Row) -> float:
        return self.judge(completion, row)[0]

    def judge(self, completion: str, row: Row) -> tuple[float, dict[str, Any]]:
        """Returns the reward and the info of a completion.

        The info holds `components` and `solved`; with several parts their values as `signals`; `lost` where a verifier
        exceeded a limit of its process.
        """
        found = self.judge_many([(completion, row)])[0]
        if found is None:
            raise VerifierError(
                f"verifier {', '.join(self.names)} took longer than its time limit; raise episodes.timeout"
            )
        return found

    def judge_many(self, answered: Sequence[tuple[str, Row]]) -> list[tuple[float, dict[str, Any]] | None]:
        """Scores each completion for its row as `judge` does; None marks one of which a part exceeded its time limit.

        Batched functions are called once, coroutines are awaited concurrently, and requests to worker processes are
        sent together.
        """
        columns = [_each(verifier, answered) for _, verifier, _ in self.parts]
        return [self._summed(found) for found in zip(*columns, strict=True)]

    def _summed(self, found: Sequence[tuple[float | None, str | None]]) -> tuple[float, dict[str, Any]] | None:
        """Returns the weighted sum and the info, None if a part's value is None.

        found: the value of each part, and the reason of its loss, None if it is not lost.
        """
        values: dict[str, float] = {}
        for name, (value, _) in zip(self.names, found, strict=True):
            if value is None:
                return None
            values[name] = value
        reward = sum(weight * values[name] for name, _, weight in self.parts)
        info: dict[str, Any] = {"components": values, "solved": values[self.parts[0][0]] >= 1}
        info |= {"signals": values} if len(values) > 1 else {}
        lost = next((why for _, why in found if why is not None), None)
        return reward, info | ({"lost": lost} if lost is not None else {})

    def check(self, row: Row) -> str | None:
        return next((problem for _, verifier, _ in self.parts if (problem := verifier.check(row))), None)


def _each(verifier: Verifier, answered: Sequence[tuple[str, Row]]) -> Sequence[tuple[float | None, str | None]]:
    """Returns the value of each answer, None where it exceeded its time limit, and the reason of its loss, None if not
    lost."""
    if isinstance(verifier, Function):
        return [(value, None) for value in verifier.verify_many(answered)]
    if not hasattr(verifier, "request"):
        return [(verifier.verify(completion, row), None) for completion, row in answered]
    judged: WorkerVerifier = verifier  # type: ignore[assignment]
    found = verdicts([judged.request(completion, row) for completion, row in answered])
    return [(judged.read(one, row), one.lost) for one, (_, row) in zip(found, answered, strict=True)]


def _unique(parts: Sequence[tuple[str, Verifier, float]]) -> list[tuple[str, Verifier, float]]:
    """Returns the parts with unique names; a repeated name gets a number."""
    count: dict[str, int] = {}
    result = []
    for name, verifier, weight in parts:
        count[name] = count.get(name, 0) + 1
        result.append((name if count[name] == 1 else f"{name}#{count[name]}", verifier, weight))
    return result
