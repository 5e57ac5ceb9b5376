"""Python functions as verifiers, in this process or in worker processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from polopt.names import nearest
from polopt.worlds.functions import Row, RowConvention, VerifierError, call, convention, is_async
from polopt.worlds.scoring.verdict import Request, Verdict
from polopt.worlds.verifiers.verifier import value_in_worker


class Function:
    """A Python reward function as a verifier, given itself or by name; see `functions.convention` for its signatures.

    Every failure in it is an error that names the function and the row.

    together: True if many completions are better scored in one call of `verify_many`, since the function is batched or
        returns a coroutine.
    per_row: True if the function is called as f(completion, row).

    Raises:
        ConfigError: the function has none of the known signatures.
    """

    reads_answer: ClassVar[bool] = False

    def __init__(self, function: Callable[..., Any], name: str | None = None) -> None:
        self._function = function
        self.name = str(name or getattr(function, "__name__", type(function).__name__))
        self._how = convention(function, self.name)
        self.together = self._how.batched or is_async(function)
        self.per_row = isinstance(self._how, RowConvention)

    def verify(self, completion: str, row: Row) -> float:
        (reward,) = self.verify_many([(completion, row)])
        if reward is None:
            raise VerifierError(f"verifier {self.name} took longer than its time limit; raise episodes.timeout")
        return reward

    def verify_many(self, answered: Sequence[tuple[str, Row]]) -> list[float | None]:
        """Scores each completion for its row as `verify` does; None marks one whose scoring exceeded its time limit."""
        return call(self._function, self.name, self._how, [text for text, _ in answered], [row for _, row in answered])

    def check(self, row: Row) -> str | None:
        absent = self._how.absent(row)
        if absent:
            return f"{self.name} needs the column {min(absent)!r}{nearest(min(absent), row)}"
        return None

    def warning_for(self, rows: Sequence[Row]) -> str | None:
        return None


class FunctionInProcess:
    """A user-defined function, by name, that scores answers in worker processes.

    The function may take long, crash, or execute an answer within the limits there (`scoring.limits`). It has no
    environment, no network and none of the modules that this process has loaded. An answer under which it dies or takes
    too long has value 0.
    """

    reads_answer: ClassVar[bool] = False

    def __init__(self, name: str) -> None:
        file, _, attribute = name.rpartition(":")
        self.name = name
        self._location = f"{Path(file).resolve()}:{attribute}" if file.endswith(".py") else name

    def verify(self, completion: str, row: Row) -> float:
        return value_in_worker(self, completion, row)

    def request(self, completion: str, row: Row) -> Request:
        return Request({"scorer": "function", "name": self._location}, row, completion)

    def read(self, verdict: Verdict, row: Row) -> float:
        if verdict.lost is not None:
            return 0.0
        if verdict.raised is not None:
            raise VerifierError(f"verifier {self.name} raised {verdict.raised}, on {_shown(row)}")
        if not math.isfinite(verdict.value):
            found = verdict.odd or repr(verdict.value)
            raise VerifierError(
                f"verifier {self.name} must return a finite number, as in 1.0 or 0.0, found {found:.60} "
                f"on {_shown(row)}"
            )
        return verdict.value

    def check(self, row: Row) -> str | None:
        return None

    def warning_for(self, rows: Sequence[Row]) -> str | None:
        return None


def _shown(row: Row) -> str:
    return f"the row with prompt {row.get('prompt')!r:.100}"
