"""Verifiers: what a completion is worth, given the row that it answers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import pydantic

from polopt.config import Config, ConfigError, parse
from polopt.names import nearest
from polopt.part_names import locate
from polopt.worlds.functions import PerRow, Row, VerifierError, call, convention, is_async
from polopt.worlds.numbers import last_number, read_number
from polopt.worlds.scoring.place import verdicts
from polopt.worlds.scoring.scorers import read_mathematics
from polopt.worlds.scoring.verdict import Request, Verdict


class Verifier(Protocol):
    reads_answer: ClassVar[bool]
    """Whether it compares with `row["answer"]`, so that every row must have one."""

    def verify(self, completion: str, row: Row) -> float:
        """What `completion` is worth as an answer to `row`, which holds `prompt`, `answer` and more."""

    def check(self, row: Row) -> str | None:
        """What keeps this row from ever being judged; None if nothing does."""

    def warning_for(self, rows: Sequence[Row]) -> str | None:
        """The sentence of a warning about these rows together; None if there is nothing to warn of."""


class WorkerVerifier(Verifier, Protocol):
    """A verifier that is not polopt's own: it judges in worker processes, see `scoring`."""

    def request(self, completion: str, row: Row) -> Request:
        """What a worker is asked."""

    def read(self, verdict: Verdict, row: Row) -> float:
        """What its verdict is worth.

        Raises:
            VerifierError: the verifier itself went wrong.
        """


class Named(Config):
    """Base of the verifiers that have a name."""

    reads_answer: ClassVar[bool] = True

    def check(self, row: Row) -> str | None:
        return None

    def warning_for(self, rows: Sequence[Row]) -> str | None:
        return None


class Exact(Named):
    """1 if the completion, stripped, is the row's answer, else 0. ignore_case: compare case-folded."""

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
        return _value(self, completion, row)

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


class MathVerify(Named):
    """1 if the completion and the row's answer are the same mathematics, by the library math-verify, else 0.

    timeout: seconds for reading and for comparing, beyond which an answer is wrong. In threads of this process, where
    episodes are played `here`, there is no limit: the library's clock is a signal.
    """

    timeout: int = pydantic.Field(default=5, ge=1)

    def verify(self, completion: str, row: Row) -> float:
        return _value(self, completion, row)

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


def _value(verifier: WorkerVerifier, completion: str, row: Row) -> float:
    (verdict,) = verdicts([verifier.request(completion, row)])
    return verifier.read(verdict, row)


def _finite(verdict: Verdict) -> float:
    """The value of an answer, 0 where the scorer could make nothing of it or lost it."""
    return verdict.value if math.isfinite(verdict.value) else 0.0


class Function:
    """A Python function that gives rewards, by itself or by name; `functions.convention` is how it is called.

    Whatever goes wrong in it is an error that names the function and the row. together: whether many completions are
    better judged in one call of `verify_many`, since the function takes many or gives a coroutine. per_row: whether it
    is called as f(completion, row).

    Raises:
        ConfigError: the function cannot be called in any of the known ways.
    """

    reads_answer: ClassVar[bool] = False

    def __init__(self, function: Callable[..., Any], name: str | None = None) -> None:
        self._function = function
        self.name = str(name or getattr(function, "__name__", type(function).__name__))
        self._how = convention(function, self.name)
        self.together = self._how.batched or is_async(function)
        self.per_row = isinstance(self._how, PerRow)

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

    def warning_for(self, rows: Sequence[Row]) -> str | None:
        return None


# Words of an answer beyond which it looks like a solution with its working.
WORDS = 20


class FunctionInProcess:
    """A function of the user's, by name, that judges in worker processes: it may take its time, die, or run an answer
    against the limits there (`scoring.limits`). It finds no environment, no network and nothing that this process has
    loaded. An answer under which it dies or takes too long is worth 0."""

    reads_answer: ClassVar[bool] = False

    def __init__(self, name: str) -> None:
        file, _, attribute = name.rpartition(":")
        self.name = name
        self._found = f"{Path(file).resolve()}:{attribute}" if file.endswith(".py") else name

    def verify(self, completion: str, row: Row) -> float:
        return _value(self, completion, row)

    def request(self, completion: str, row: Row) -> Request:
        return Request({"scorer": "function", "name": self._found}, row, completion)

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


def make_verifier(spec: Any, where: str = "verifier") -> Weighted:
    """Verifiers from plain data.

    `numeric`; `my_rewards.py:reward`; a function; `{"verifier": "numeric", "tolerance": 0.01, "weight": 2}`;
    `{"verifier": "my_rewards.py:reward", "where": "processes"}` for a function that judges in worker processes; or a
    list of these.

    Raises:
        ConfigError: an unknown verifier or setting (with the nearest valid one), a wrong value, or a function that
            cannot be called in any of the known ways.
        NameNotFound: a file, module or function that does not exist or cannot be loaded.
    """
    if isinstance(spec, (list, tuple)):
        return Weighted([_part(each, f"{where}.{i}") for i, each in enumerate(spec)])
    return Weighted([_part(spec, where)])


def computing(spec: Any) -> str | None:
    """The name of a verifier that computes and never waits, if no other among those that `spec` describes can wait."""
    each = spec if isinstance(spec, (list, tuple)) else [spec]
    names = [one.get("verifier") if isinstance(one, Mapping) else one for one in each]
    if not all(isinstance(name, str) and name in NAMED for name in names):
        return None
    return next((name for name in names if name in ("regex", "math-verify")), None)


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
    place = settings.pop("where", "here")
    if place not in ("here", "processes"):
        raise ConfigError(f"{where}.where = {place!r:.60}: a function runs 'here' or in 'processes'")
    if settings:
        raise ConfigError(f"{where}.{next(iter(settings))} is not a setting: a function takes only a weight, and where")
    try:
        made = Function(function, kind if isinstance(kind, str) else None)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    name = made.name.rpartition(":")[2]
    if place == "here":
        return name, made, weight
    if not isinstance(kind, str):
        raise ConfigError(f"{where}.where = 'processes' needs a function by name, as in my_rewards.py:reward")
    if made.together or not made.per_row:
        raise ConfigError(
            f"{where}.where = 'processes' is for functions of one answer, as f(completion, row), and {made.name} is "
            "called in another way; write one, or leave where out"
        )
    return name, FunctionInProcess(kind), weight


class _Weight(Config):
    weight: float = pydantic.Field(default=1.0, allow_inf_nan=False)


def _only(settings: dict[str, Any], key: str) -> dict[str, Any]:
    """Take `key` out of `settings`, if it is there."""
    return {key: settings.pop(key)} if key in settings else {}
