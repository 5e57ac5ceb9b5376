"""Several verifiers as one: the weighted sum of their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polopt.config import ConfigError
from polopt.worlds.functions import Row, VerifierError
from polopt.worlds.scoring.place import verdicts
from polopt.worlds.verifiers.python_functions import Function
from polopt.worlds.verifiers.verifier import Verifier, WorkerVerifier


class Weighted:
    """Several verifiers: reward = sum_i weight_i * verify_i(completion, row).

    parts: (name, verifier, weight). The first part is the task and the others shape it: an answer is solved
    if the first part gives it 1 or more.
    """

    def __init__(self, parts: Sequence[tuple[str, Verifier, float]]) -> None:
        self.parts = _unique(parts)
        if not self.parts:
            raise ConfigError("verifier: at least one is needed, as in 'exact' or 'numeric'; found none")

    @property
    def together(self) -> bool:
        """Whether many completions are better judged in one call of `judge_many`."""
        return any(getattr(verifier, "together", False) for _, verifier, _ in self.parts)

    @property
    def reads_answer(self) -> bool:
        """Whether a part compares with `row["answer"]`."""
        return any(verifier.reads_answer for _, verifier, _ in self.parts)

    def warnings_for(self, rows: Sequence[Row]) -> list[str]:
        """The sentences of all parts about these rows together."""
        return [found for _, verifier, _ in self.parts if (found := verifier.warning_for(rows))]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the parts, in their order."""
        return tuple(name for name, _, _ in self.parts)

    def components(self, completion: str, row: Row) -> dict[str, float]:
        """Each part's value, unweighted, by name."""
        return {name: verifier.verify(completion, row) for name, verifier, _ in self.parts}

    def verify(self, completion: str, row: Row) -> float:
        return self.judge(completion, row)[0]

    def judge(self, completion: str, row: Row) -> tuple[float, dict[str, Any]]:
        """The reward, and what `Step.info` holds of it: `components` and `solved`; of several parts, their values as
        `signals`; `lost` where a verifier ran into a limit of its process."""
        found = self.judge_many([(completion, row)])[0]
        if found is None:
            raise VerifierError(
                f"verifier {', '.join(self.names)} took longer than its time limit; raise episodes.timeout"
            )
        return found

    def judge_many(self, answered: Sequence[tuple[str, Row]]) -> list[tuple[float, dict[str, Any]] | None]:
        """As `judge`, of each completion and its row; None where a part took longer than its time limit. Functions of
        many completions are called once, coroutines are awaited beside each other, and what worker processes judge is
        sent to them together."""
        columns = [_each(verifier, answered) for _, verifier, _ in self.parts]
        return [self._summed(found) for found in zip(*columns, strict=True)]

    def _summed(self, found: Sequence[tuple[float | None, str | None]]) -> tuple[float, dict[str, Any]] | None:
        """found: the value of each part, and why it was lost if it was."""
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
    """The value of each answer, None where it took longer than its time limit, and why it was lost if it was."""
    if isinstance(verifier, Function):
        return [(value, None) for value in verifier.verify_many(answered)]
    if not hasattr(verifier, "request"):
        return [(verifier.verify(completion, row), None) for completion, row in answered]
    judged: WorkerVerifier = verifier  # type: ignore[assignment]
    found = verdicts([judged.request(completion, row) for completion, row in answered])
    return [(judged.read(one, row), one.lost) for one, (_, row) in zip(found, answered, strict=True)]


def _unique(parts: Sequence[tuple[str, Verifier, float]]) -> list[tuple[str, Verifier, float]]:
    """The same parts; a name that comes again gets its number."""
    count: dict[str, int] = {}
    result = []
    for name, verifier, weight in parts:
        count[name] = count.get(name, 0) + 1
        result.append((name if count[name] == 1 else f"{name}#{count[name]}", verifier, weight))
    return result
