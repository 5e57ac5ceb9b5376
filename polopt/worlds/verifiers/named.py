"""Built-in verifiers by name: exact, numeric, regex and math-verify."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar, Literal

import pydantic

from polopt.config import Config, ConfigError
from polopt.worlds.functions import Row
from polopt.worlds.numbers import last_number, read_number
from polopt.worlds.scoring.scorers import read_mathematics
from polopt.worlds.scoring.verdict import Request, Verdict
from polopt.worlds.verifiers.verifier import value_in_worker


class NamedVerifier(Config):
    """Base of the verifiers that have a name."""

    reads_answer: ClassVar[bool] = True

    def check(self, row: Row) -> str | None:
        return None

    def warning_for(self, rows: Sequence[Row]) -> str | None:
        return None


class Exact(NamedVerifier):
    """Value 1 if the completion, stripped, equals the row's answer, else 0.

    ignore_case: compare case-folded.
    """

    ignore_case: bool = False

    def verify(self, completion: str, row: Row) -> float:
        return float(self._plain(completion) == self._plain(row["answer"]))

    def warning_for(self, rows: Sequence[Row]) -> str | None:
        worked = [row["answer"] for row in rows if "####" in row["answer"] or len(row["answer"].split()) > WORDS]
        if 2 * len(worked) <= len(rows):
            return None
        return (
            f"{len(worked)} of {len(rows)} answers look like whole solutions, as in {worked[0]!r:.60}, and the "
            "verifier 'exact' rewards only their repetition, word for word; set answer_after to the text before the "
            "final answer (such as '####'), or put the working into a field 'solution'"
        )

    def _plain(self, text: str) -> str:
        return text.strip().casefold() if self.ignore_case else text.strip()


class Numeric(NamedVerifier):
    """Value 1 if the completion is the row's number: |x - y| <= max(tolerance, relative * |y|), else 0.

    The numbers are compared exactly, as fractions; see `read_number` for the accepted forms.

    take: `whole` reads the completion as one number, `last` takes the last number in it.
    """

    tolerance: float = pydantic.Field(default=0.0, ge=0, allow_inf_nan=False)
    relative: float = pydantic.Field(default=0.0, ge=0, allow_inf_nan=False)
    take: Literal["whole", "last"] = "whole"

    def verify(self, completion: str, row: Row) -> float:
        found = read_number(completion) if self.take == "whole" else last_number(completion)
        expected = read_number(row["answer"])
        if found is None or expected is None:
            return 0.0
        # Through repr, so that a tolerance of 0.1 means a tenth and not the float nearest to it.
        slack = max(Fraction(repr(self.tolerance)), Fraction(repr(self.relative)) * abs(expected))
        return float(abs(found - expected) <= slack)

    def check(self, row: Row) -> str | None:
        if read_number(row["answer"]) is None:
            return f"field 'answer' must be a number for the numeric verifier, found {row['answer']!r:.60}"
        return None


class Regex(NamedVerifier):
    """Value 1 if the pattern is found in the completion, else 0.

    pattern: a Python regular expression; by default each row has its own in its field `pattern`.
    """

    reads_answer: ClassVar[bool] = False
    pattern: str | None = None

    @pydantic.field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        problem = pattern is not None and _pattern_problem(pattern)
        if problem:
            raise ValueError(problem)
        return pattern

    def verify(self, completion: str, row: Row) -> float:
        return value_in_worker(self, completion, row)

    def request(self, completion: str, row: Row) -> Request:
        own = {} if self.pattern is not None else {"pattern": row["pattern"]}
        return Request({"scorer": "regex", "pattern": self.pattern}, own, completion)

    def read(self, verdict: Verdict, row: Row) -> float:
        return _finite(verdict)

    def check(self, row: Row) -> str | None:
        if self.pattern is not None:
            return None
        if not isinstance(row.get("pattern"), str) or not row["pattern"]:
            return "field 'pattern' must be a regular expression, or give the regex verifier one for all rows"
        problem = _pattern_problem(row["pattern"])
        return f"field 'pattern': {problem}" if problem else None


def _pattern_problem(pattern: str) -> str | None:
    try:
        re.compile(pattern)
    except re.error as error:
        return f"{pattern!r:.60} is not a regular expression: {error}"
    return None


class MathVerify(NamedVerifier):
    """Value 1 if the completion and the row's answer are mathematically equal, by the library math-verify, else 0.

    timeout: seconds for reading and for comparing, beyond which an answer is wrong. In threads of this process, where
        episodes are played `here`, there is no limit, because the library's timeout is a signal.
    """

    timeout: int = pydantic.Field(default=5, ge=1)

    def verify(self, completion: str, row: Row) -> float:
        return value_in_worker(self, completion, row)

    def request(self, completion: str, row: Row) -> Request:
        return Request({"scorer": "math-verify", "timeout": self.timeout}, {"answer": row["answer"]}, completion)

    def read(self, verdict: Verdict, row: Row) -> float:
        return _finite(verdict)

    def check(self, row: Row) -> str | None:
        try:
            found = read_mathematics(row["answer"], self.timeout)
        except ImportError:
            raise ConfigError("the verifier 'math-verify' needs the package: pip install math-verify") from None
        return None if found else f"field 'answer': math-verify finds no mathematics in {row['answer']!r:.60}"


def _finite(verdict: Verdict) -> float:
    """Returns the value of an answer, 0 where the scorer raised, lost the answer or returned no finite number."""
    return verdict.value if math.isfinite(verdict.value) else 0.0


# An answer with more words than this looks like a solution with its working.
WORDS = 20
NAMED: dict[str, type[NamedVerifier]] = {
    "exact": Exact,
    "numeric": Numeric,
    "regex": Regex,
    "math-verify": MathVerify,
}
