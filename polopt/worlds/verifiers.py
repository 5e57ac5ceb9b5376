"""Verifiers: what a completion is worth, given the row that it answers."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Literal, Protocol

import pydantic

from polopt.config import Config, ConfigError, parse
from polopt.part import locate, nearest
from polopt.worlds.functions import Row, VerifierError, call, convention, is_async
from polopt.worlds.numbers import last_number, read_number


class Verifier(Protocol):
    reads_answer: ClassVar[bool]
    """Whether it compares with `row["answer"]`, so that every row must have one."""

    def verify(self, completion: str, row: Row) -> float:
        """What `completion` is worth as an answer to `row`, which holds `prompt`, `answer` and more."""

    def check(self, row: Row) -> str | None:
        """What keeps this row from ever being judged; None if nothing does."""

    def doubt(self, rows: Sequence[Row]) -> str | None:
        """What is odd about these rows together, for a warning; None if nothing is."""


class Named(Config):
    """Base of the verifiers that have a name."""

    reads_answer: ClassVar[bool] = True

    def check(self, row: Row) -> str | None:
        return None

    def doubt(self, rows: Sequence[Row]) -> str | None:
        return None


class Exact(Named):
    """1 if the completion, stripped, is the row's answer, else 0. ignore_case: compare case-folded."""

    ignore_case: bool = False

    def verify(self, completion: str, row: Row) -> float:
        return float(self._plain(completion) == self._plain(row["answer"]))

    def doubt(self, rows: Sequence[Row]) -> str | None:
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


class Numeric(Named):
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


class Regex(Named):
    """1 if the pattern is found in the completion, else 0.

    pattern: a Python regular expression; by default each row brings its own in its field `pattern`.
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


class MathVerify(Named):
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
    """A Python function that gives rewards, by itself or by name; `functions.convention` is how it is called.

    Whatever goes wrong in it is an error that names the function and the row. together: whether many completions are
    better judged in one call of `verify_many`, since the function takes many or gives a coroutine.

    Raises:
        ConfigError: the function cannot be called in any of the known ways.
    """

    reads_answer: ClassVar[bool] = False

    def __init__(self, function: Callable[..., Any], name: str | None = None) -> None:
        self._function = function
        self.name = str(name or getattr(function, "__name__", type(function).__name__))
        self._how = convention(function, self.name)
        self.together = self._how.batched or is_async(function)

    def verify(self, completion: str, row: Row) -> float:
        (reward,) = self.verify_many([(completion, row)])
        if reward is None:
            raise VerifierError(f"verifier {self.name} took longer than its time limit; raise episodes.timeout")
        return reward

    def verify_many(self, answered: Sequence[tuple[str, Row]]) -> list[float | None]:
        """As `verify`, of each completion and its row; None where it took longer than its time limit."""
        return call(self._function, self.name, self._how, [text for text, _ in answered], [row for _, row in answered])

    def check(self, row: Row) -> str | None:
        absent = self._how.absent(row)
        if absent:
            return f"{self.name} needs the column {min(absent)!r}{nearest(min(absent), row)}"
        return None

    def doubt(self, rows: Sequence[Row]) -> str | None:
        return None


# Words of an answer beyond which it looks like a solution with its working.
WORDS = 20

NAMED: dict[str, type[Named]] = {
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

    @property
    def together(self) -> bool:
        """Whether many completions are better judged in one call of `judge_many`."""
        return any(getattr(verifier, "together", False) for _, verifier, _ in self.parts)

    @property
    def reads_answer(self) -> bool:
        """Whether a part compares with `row["answer"]`."""
        return any(verifier.reads_answer for _, verifier, _ in self.parts)

    def doubts(self, rows: Sequence[Row]) -> list[str]:
        """What its parts find odd about these rows together."""
        return [doubt for _, verifier, _ in self.parts if (doubt := verifier.doubt(rows))]

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
        """The reward, and what `Step.info` holds of it: `components` and `solved`, and, of several parts, their values
        as `signals`."""
        return self._total(self.components(completion, row))

    def judge_many(self, answered: Sequence[tuple[str, Row]]) -> list[tuple[float, dict[str, Any]] | None]:
        """As `judge`, of each completion and its row; None where a part took longer than its time limit. Functions of
        many completions are called once, coroutines are awaited beside each other."""
        columns = [_values(verifier, answered) for _, verifier, _ in self.parts]
        found = [dict(zip(self.names, values, strict=True)) for values in zip(*columns, strict=True)]
        return [None if None in values.values() else self._total(values) for values in found]  # type: ignore[arg-type]

    def _total(self, values: dict[str, float]) -> tuple[float, dict[str, Any]]:
        reward = sum(weight * values[name] for name, _, weight in self.parts)
        info: dict[str, Any] = {"components": values, "solved": values[self.parts[0][0]] >= 1}
        return reward, info | ({"signals": values} if len(values) > 1 else {})

    def check(self, row: Row) -> str | None:
        return next((problem for _, verifier, _ in self.parts if (problem := verifier.check(row))), None)


def _values(verifier: Verifier, answered: Sequence[tuple[str, Row]]) -> Sequence[float | None]:
    if isinstance(verifier, Function):
        return verifier.verify_many(answered)
    return [verifier.verify(completion, row) for completion, row in answered]


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

    `numeric`; `my_rewards.py:reward`; a function; `{"verifier": "numeric", "tolerance": 0.01, "weight": 2}`;
    or a list of these.

    Raises:
        ConfigError: an unknown verifier or setting (with the nearest valid one), a wrong value, or a function that
            cannot be called in any of the known ways.
        NameNotFound: a file, module or function that does not exist or cannot be loaded.
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
    try:
        made = Function(function, kind if isinstance(kind, str) else None)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    return made.name.rpartition(":")[2], made, weight


class _Weight(Config):
    weight: float = pydantic.Field(default=1.0, allow_inf_nan=False)


def _only(settings: dict[str, Any], key: str) -> dict[str, Any]:
    """Take `key` out of `settings`, if it is there."""
    return {key: settings.pop(key)} if key in settings else {}
