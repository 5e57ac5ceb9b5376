"""Verifiers: what a completion is worth, given the row that it answers."""

from __future__ import annotations

import inspect
import math
import numbers
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, Protocol

import numpy as np
import pydantic

from polopt.config import Config, ConfigError, parse
from polopt.errors import UserError
from polopt.part import locate, nearest
from polopt.worlds.numbers import last_number, read_number

Row = Mapping[str, Any]


class VerifierError(UserError, RuntimeError):
    """A reward function raised, or returned something that is no finite number."""


class Verifier(Protocol):
    def verify(self, completion: str, row: Row) -> float:
        """What `completion` is worth as an answer to `row`, which holds `prompt`, `answer` and more."""

    def check(self, row: Row) -> str | None:
        """What keeps this row from ever being judged; None if nothing does."""


class Exact(Config):
    """1 if the completion, stripped, is the row's answer, else 0. ignore_case: compare case-folded."""

    ignore_case: bool = False

    def verify(self, completion: str, row: Row) -> float:
        return float(self._plain(completion) == self._plain(row["answer"]))

    def check(self, row: Row) -> str | None:
        return None

    def _plain(self, text: str) -> str:
        return text.strip().casefold() if self.ignore_case else text.strip()


class Numeric(Config):
    """1 if the completion is the row's number: |x - y| <= max(tolerance, relative * |y|), else 0.

    Compared exactly, as fractions; see `read_number` for what a number may look like.
    take: `whole` reads the completion as one number, `last` takes the last number in it.
    """

    tolerance: float = pydantic.Field(default=0.0, ge=0, allow_inf_nan=False)
    relative: float = pydantic.Field(default=0.0, ge=0, allow_inf_nan=False)
    take: Literal["whole", "last"] = "whole"

    def verify(self, completion: str, row: Row) -> float:
        found = read_number(completion) if self.take == "whole" else last_number(completion)
        wanted = read_number(row["answer"])
        if found is None or wanted is None:
            return 0.0
        # Through repr, so that a tolerance of 0.1 means a tenth and not the float nearest to it.
        slack = max(Fraction(repr(self.tolerance)), Fraction(repr(self.relative)) * abs(wanted))
        return float(abs(found - wanted) <= slack)

    def check(self, row: Row) -> str | None:
        if read_number(row["answer"]) is None:
            return f"field 'answer' must be a number for the numeric verifier, found {row['answer']!r:.60}"
        return None


class Regex(Config):
    """1 if the pattern is found in the completion, else 0.

    pattern: a Python regular expression; by default each row brings its own in its field `pattern`.
    """

    pattern: str | None = None

    @pydantic.field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        problem = pattern is not None and _pattern_problem(pattern)
        if problem:
            raise ValueError(problem)
        return pattern

    def verify(self, completion: str, row: Row) -> float:
        return float(re.search(self.pattern or row["pattern"], completion) is not None)

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


class MathVerify(Config):
    """1 if the completion and the row's answer are the same mathematics, by the library math-verify, else 0.

    timeout: seconds for reading and for comparing, in the main thread; other threads have no time limit.
    """

    timeout: int = pydantic.Field(default=5, ge=1)

    def verify(self, completion: str, row: Row) -> float:
        library, timeout = _math_verify(), self._limit()
        found = library.parse(completion, parsing_timeout=timeout)
        return float(bool(library.verify(self._wanted(row), found, timeout_seconds=timeout)))

    def check(self, row: Row) -> str | None:
        if not self._wanted(row):
            return f"field 'answer': math-verify finds no mathematics in {row['answer']!r:.60}"
        return None

    def _wanted(self, row: Row) -> Any:
        library, timeout, answer = _math_verify(), self._limit(), row["answer"]
        marked = "$" in answer or "\\boxed" in answer
        return library.parse(answer if marked else f"${answer}$", parsing_timeout=timeout)

    def _limit(self) -> int | None:
        # The library's clock is a signal, which only the main thread may set.
        return self.timeout if threading.current_thread() is threading.main_thread() else None


def _math_verify() -> Any:
    try:
        import math_verify
    except ImportError:
        raise ConfigError("the verifier 'math-verify' needs the package: pip install math-verify") from None
    return math_verify


class Function:
    """A Python function `reward(completion: str, row: dict) -> float`, by itself or by name.

    Whatever goes wrong in it is an error that names the function and the row.
    """

    def __init__(self, function: Callable[[str, dict[str, Any]], float], name: str | None = None) -> None:
        self._function = function
        self.name = str(name or getattr(function, "__name__", type(function).__name__))

    def verify(self, completion: str, row: Row) -> float:
        try:
            value = self._function(completion, dict(row))
        except Exception as error:
            raise VerifierError(
                f"verifier {self.name} raised {type(error).__name__}: {error}, on {_shown(row)}"
            ) from error
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real) or not math.isfinite(value):
            raise VerifierError(
                f"verifier {self.name} must return a finite number, as in 1.0 or 0.0, found {value!r:.60} "
                f"on {_shown(row)}"
            )
        return float(value)

    def check(self, row: Row) -> str | None:
        return None


def _shown(row: Row) -> str:
    return f"the row with prompt {row.get('prompt')!r:.100}"


NAMED: dict[str, type[Config]] = {
    "exact": Exact,
    "numeric": Numeric,
    "regex": Regex,
    "math-verify": MathVerify,
}


class Weighted:
    """Several verifiers: reward = sum_i weight_i * verify_i(completion, row).

    parts: (name, verifier, weight). The first part is the task and the others shape it: an answer is solved
    if the first part gives it 1 or more.
    """

    def __init__(self, parts: Sequence[tuple[str, Verifier, float]]) -> None:
        self.parts = _unique(parts)
        if not self.parts:
            raise ConfigError("verifier: at least one is needed, as in 'exact' or 'numeric'; found none")

    def components(self, completion: str, row: Row) -> dict[str, float]:
        """Each part's value, unweighted, by name."""
        return {name: verifier.verify(completion, row) for name, verifier, _ in self.parts}

    def verify(self, completion: str, row: Row) -> float:
        return self.judge(completion, row)[0]

    def judge(self, completion: str, row: Row) -> tuple[float, dict[str, Any]]:
        """The reward, and what `Step.info` says of it: `components` and `solved`."""
        values = self.components(completion, row)
        reward = sum(weight * values[name] for name, _, weight in self.parts)
        return reward, {"components": values, "solved": values[self.parts[0][0]] >= 1}

    def check(self, row: Row) -> str | None:
        return next((problem for _, verifier, _ in self.parts if (problem := verifier.check(row))), None)


def _unique(parts: Sequence[tuple[str, Verifier, float]]) -> list[tuple[str, Verifier, float]]:
    """The same parts; a name that comes again gets its number."""
    count: dict[str, int] = {}
    result = []
    for name, verifier, weight in parts:
        count[name] = count.get(name, 0) + 1
        result.append((name if count[name] == 1 else f"{name}#{count[name]}", verifier, weight))
    return result


def make_verifier(spec: Any, where: str = "verifier") -> Weighted:
    """Verifiers from plain data.

    `numeric`; `my_rewards.py:reward`; a callable; `{"verifier": "numeric", "tolerance": 0.01, "weight": 2}`;
    or a list of these.

    Raises:
        ConfigError: an unknown verifier or setting (with the nearest valid one), or a wrong value.
        ValueError: a file, module or function that does not exist.
    """
    if isinstance(spec, (list, tuple)):
        return Weighted([_part(each, f"{where}.{i}") for i, each in enumerate(spec)])
    return Weighted([_part(spec, where)])


def _part(spec: Any, where: str) -> tuple[str, Verifier, float]:
    settings = dict(spec) if isinstance(spec, Mapping) else {"verifier": spec}
    if "verifier" not in settings:
        raise ConfigError(f"{where}.verifier is missing; name one of {', '.join(NAMED)}, or file.py:function")
    kind, weight = settings.pop("verifier"), parse(_Weight, _only(settings, "weight"), where).weight
    if isinstance(kind, str) and kind in NAMED:
        verifier: Any = parse(NAMED[kind], settings, where)
        return kind, verifier, weight
    if isinstance(kind, str) and ":" not in kind:
        raise ConfigError(f"{where}: {kind!r} is not a verifier{nearest(kind, NAMED)}")
    function = locate(kind) if isinstance(kind, str) else kind
    if not callable(function):
        raise ConfigError(f"{where}: expected a verifier's name or a function, found {kind!r:.60}")
    if settings:
        raise ConfigError(f"{where}.{next(iter(settings))} is not a setting: a function takes only a weight")
    made = Function(function, kind if isinstance(kind, str) else None)
    try:
        inspect.signature(function).bind("completion", {})
    except TypeError as error:
        raise ConfigError(f"{where}: {made.name} is called as function(completion, row), but {error}") from None
    return made.name, made, weight


class _Weight(Config):
    weight: float = pydantic.Field(default=1.0, allow_inf_nan=False)


def _only(settings: dict[str, Any], key: str) -> dict[str, Any]:
    """Take `key` out of `settings`, if it is there."""
    return {key: settings.pop(key)} if key in settings else {}
