"""User-defined reward functions: how each is called, by the names of its parameters, and which values it may return."""

from __future__ import annotations

import abc
import asyncio
import contextvars
import functools
import inspect
import math
import numbers
import os
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from polopt.config import ConfigError
from polopt.errors import UserError
from polopt.part_names import described
from polopt.worlds.protocol import LARGEST

Row = Mapping[str, Any]
T = TypeVar("T")

KINDS = (
    "f(completion, row), f(prompts, completions, **columns) or f(data_source, solution_str, ground_truth, extra_info)"
)
# Arguments that TRL's trainer passes to reward functions, and a verifier does not have.
ONLY_IN_TRL = frozenset({"completion_ids", "trainer_state", "log_extra", "log_metric"})


# Seconds that a coroutine may take, None for no limit.
_time_limit: contextvars.ContextVar[float | None] = contextvars.ContextVar("time limit of a coroutine", default=None)


def limited(timeout: float | None, function: Callable[..., T]) -> Callable[..., T]:
    """Wraps a function so that each coroutine of a reward function called in it may take `timeout` seconds."""

    def call_limited(*arguments: Any) -> T:
        token = _time_limit.set(timeout)
        try:
            return function(*arguments)
        finally:
            _time_limit.reset(token)

    return call_limited


class VerifierError(UserError, RuntimeError):
    """Raised when a reward function raised, or returned a value that is no finite number."""


class Convention(abc.ABC):
    """The calling convention of a reward function.

    accepts: names of the function's parameters.
    requires: names of its parameters without a default.
    everything: True if it accepts any keyword.
    batched: True if one call scores many completions.
    """

    batched: ClassVar[bool] = False

    def __init__(self, accepts: frozenset[str], requires: frozenset[str], everything: bool) -> None:
        self.accepts, self.requires, self.everything = accepts, requires, everything

    @abc.abstractmethod
    def arguments(self, completions: Sequence[str], rows: Sequence[Row]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the positional and keyword arguments of one call, for one completion unless calls are batched."""

    def absent(self, row: Row) -> frozenset[str]:
        """Returns the parameters without a default for which this row has no value."""
        return frozenset()

    def value(self, returned: Any) -> Any:
        """Extracts the reward from the function's return value."""
        return returned

    def _accepted(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if self.everything or name in self.accepts}


class RowConvention(Convention):
    """The convention `f(completion, row)`."""

    def arguments(self, completions: Sequence[str], rows: Sequence[Row]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (completions[0], dict(rows[0])), {}


class TRLConvention(Convention):
    """TRL's convention `f(prompts, completions, **columns)`: keyword arguments, each a list with one value per
    completion.

    Where the prompt is a list of messages, so is the completion: one message of the assistant.
    """

    batched = True

    def arguments(self, completions: Sequence[str], rows: Sequence[Row]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        names = dict.fromkeys(name for row in rows for name in row if name not in ("prompts", "completions"))
        columns: dict[str, list[Any]] = {name: [row.get(name) for row in rows] for name in names}
        columns["prompts"] = [row.get("prompt") for row in rows]
        columns["completions"] = [_as_prompted(text, row) for text, row in zip(completions, rows, strict=True)]
        return (), self._accepted(columns)

    def absent(self, row: Row) -> frozenset[str]:
        return self.requires - row.keys() - {"prompts", "completions"}


class VerlConvention(Convention):
    """verl's convention `f(data_source, solution_str, ground_truth, extra_info)`, all keyword arguments.

    The function returns a number, or a dict with `score`. The ground truth is the row's field of that name, else that
    of its `reward_model`, else its answer.
    """

    names: ClassVar[tuple[str, ...]] = ("data_source", "solution_str", "ground_truth", "extra_info")

    def arguments(self, completions: Sequence[str], rows: Sequence[Row]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (), self._accepted(self._values(completions[0], rows[0]))

    def value(self, returned: Any) -> Any:
        return returned.get("score", returned) if isinstance(returned, Mapping) else returned

    def _values(self, completion: str, row: Row) -> dict[str, Any]:
        model = row.get("reward_model")
        truth = model.get("ground_truth") if isinstance(model, Mapping) else None
        truth = row.get("ground_truth", row.get("answer") if truth is None else truth)
        values = (row.get("data_source"), completion, truth, row.get("extra_info") or {})
        return dict(zip(self.names, values, strict=True))


class VerlBatchConvention(VerlConvention):
    """verl's batched convention `f(data_sources, solution_strs, ground_truths, extra_infos)`."""

    batched = True

    def arguments(self, completions: Sequence[str], rows: Sequence[Row]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        found = [self._values(text, row) for text, row in zip(completions, rows, strict=True)]
        return (), self._accepted({f"{name}s": [values[name] for values in found] for name in self.names})


def convention(function: Callable[..., Any], name: str) -> Convention:
    """Infers the function's calling convention from the names of its parameters.

    Raises:
        ConfigError: the function has parameters that no convention fills.
    """
    try:
        signature = inspect.signature(function)
    except ValueError:  # some functions written in C
        return RowConvention(frozenset(), frozenset(), False)
    by_name = {n: p for n, p in signature.parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    requires = frozenset(n for n, p in by_name.items() if p.default is p.empty)
    settings = (frozenset(by_name), requires, any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()))
    if requires & ONLY_IN_TRL:
        raise ConfigError(
            f"{name} needs {', '.join(sorted(requires & ONLY_IN_TRL))}, which only TRL's trainer has; verifiers are "
            "given prompts, completions and the columns of the data"
        )
    if "completions" in by_name:
        return TRLConvention(*settings)
    for kind, mark, known in (
        (VerlConvention, "", VerlConvention.names),
        (VerlBatchConvention, "s", [f"{n}s" for n in VerlConvention.names]),
    ):
        if f"solution_str{mark}" in by_name:
            if requires - set(known):
                missing = ", ".join(sorted(requires - set(known)))
                raise ConfigError(f"{name} needs {missing}, and is given {', '.join(known)}; give {missing} a default")
            return kind(*settings)
    try:
        signature.bind("completion", {})
    except TypeError as error:
        raise ConfigError(f"{name} is called as function(completion, row), but {error}; write it as {KINDS}") from None
    return RowConvention(*settings)


def call(
    function: Callable[..., Any],
    name: str,
    how: Convention,
    completions: Sequence[str],
    rows: Sequence[Row],
) -> list[float | None]:
    """Returns the reward of each completion, None where a coroutine exceeded the time limit (`limited`).

    Coroutines are awaited concurrently.

    Raises:
        VerifierError: the function raised, or returned anything but a finite number for each completion.
    """
    groups = [range(len(rows))] if how.batched else [range(i, i + 1) for i in range(len(rows))]
    returned: list[Any] = []
    for group in groups if rows else []:
        positional, named = how.arguments([completions[i] for i in group], [rows[i] for i in group])
        try:
            returned.append(function(*positional, **named))
        except (Exception, SystemExit) as error:
            raise _raised(function, name, error, [rows[i] for i in group]) from error
    waiting = [i for i, value in enumerate(returned) if inspect.isawaitable(value)]
    late = set()
    outcomes = awaited([returned[i] for i in waiting], _time_limit.get())
    for i, (done, value, failure) in zip(waiting, outcomes, strict=True):
        if failure is not None:
            raise _raised(function, name, failure, [rows[j] for j in groups[i]]) from failure
        returned[i] = value
        if not done:
            late.add(i)
    rewards: list[float | None] = []
    for i, (group, value) in enumerate(zip(groups, returned, strict=False)):
        group_rows = [rows[j] for j in group]
        values = _each(name, value, group_rows) if how.batched and i not in late else [value] * len(group_rows)
        rewards += [
            None if i in late else number(how.value(v), name, row) for v, row in zip(values, group_rows, strict=True)
        ]
    return rewards


def number(value: Any, name: str, row: Row) -> float:
    """Converts a returned value to a finite float: numbers and truth values of Python, NumPy and PyTorch, and arrays
    and tensors without dimensions.

    Raises:
        VerifierError: the value is anything else.
    """
    found = value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value
    if isinstance(found, numbers.Real):
        reward = float(found) if abs(found) <= LARGEST else math.nan  # type: ignore[operator]
        if not math.isnan(reward):
            return reward
        advice = "0.0 where there is nothing to score" if math.isnan(found) else f"at most {LARGEST:g} in size"
    elif isinstance(found, str):
        advice = "float(...) of a text"
    elif isinstance(found, Mapping):
        advice = "the number alone" if "score" not in found else "its 'score' alone"
    elif hasattr(found, "__len__"):
        advice = "one number; a function of many completions has a parameter named completions"
    else:
        advice = "0.0 where there is nothing to score"
    raise VerifierError(
        f"verifier {name} must return a finite number or a bool, found {value!r:.60} ({type(value).__name__}) on "
        f"{shown(row)}; return {advice}"
    )


def shown(row: Row) -> str:
    """Formats a row for a message."""
    return f"the row with prompt {row.get('prompt')!r:.100}"


def is_async(function: Callable[..., Any]) -> bool:
    """Returns True if calling the function returns a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def awaited(
    awaitables: Sequence[Awaitable[Any]], timeout: float | None
) -> list[tuple[bool, Any, BaseException | None]]:
    """Awaits all awaitables concurrently and returns (done in time, value, error) of each, in order.

    All are awaited in one event loop that lives as long as the process, so that clients and locks bound to a loop can
    be kept between calls.
    """
    if not awaitables:
        return []
    future = asyncio.run_coroutine_threadsafe(_all(awaitables, timeout), _loop(os.getpid()))
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def _all(awaitables: Sequence[Awaitable[Any]], timeout: float | None) -> list[Any]:
    tasks = [asyncio.ensure_future(_outcome(awaitable)) for awaitable in awaitables]
    _, late = await asyncio.wait(tasks, timeout=timeout)
    for task in late:
        task.cancel()
    return [(False, None, None) if task in late else (True, *task.result()) for task in tasks]


async def _outcome(awaitable: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    try:
        return await awaitable, None
    except asyncio.CancelledError:
        raise
    except (Exception, SystemExit) as error:  # an exit would end the loop's thread
        return None, error


@functools.cache
def _loop(process: int) -> asyncio.AbstractEventLoop:
    """Returns the event loop of this process; a forked process has its own."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="verifiers", daemon=True).start()
    return loop


def _as_prompted(completion: str, row: Row) -> str | list[dict[str, str]]:
    if isinstance(row.get("prompt"), (list, tuple)):
        return [{"role": "assistant", "content": completion}]
    return completion


def _each(name: str, returned: Any, rows: Sequence[Row]) -> list[Any]:
    """Returns the values of a batched call, one for each row."""
    values = returned.tolist() if hasattr(returned, "tolist") else returned
    if not isinstance(values, (list, tuple)) or len(values) != len(rows):
        found = f"{len(values)} values" if isinstance(values, (list, tuple)) else f"{returned!r:.60}"
        raise VerifierError(
            f"verifier {name} must return a list with one number for each of {len(rows)} completions, found {found}; "
            f"the first is of {shown(rows[0])}"
        )
    return list(values)


def _raised(function: Callable[..., Any], name: str, error: BaseException, rows: Sequence[Row]) -> VerifierError:
    plain = inspect.unwrap(function)
    code = getattr(plain, "__code__", None) or getattr(type(plain).__call__, "__code__", None)
    where = shown(rows[0]) if len(rows) == 1 else f"{len(rows)} completions, the first of {shown(rows[0])}"
    return VerifierError(f"verifier {name} raised {described(error, getattr(code, 'co_filename', None))} on {where}")
