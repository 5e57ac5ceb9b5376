"""Verifiers from plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pydantic

from polopt.config import Config, ConfigError, parse
from polopt.names import nearest
from polopt.part_names import locate
from polopt.worlds.verifiers.named import NAMED
from polopt.worlds.verifiers.python_functions import Function, FunctionInProcess
from polopt.worlds.verifiers.verifier import Verifier
from polopt.worlds.verifiers.weighted import Weighted


def make_verifier(spec: Any, where: str = "verifier") -> Weighted:
    """Builds verifiers from plain data.

    The data is `numeric`; `my_rewards.py:reward`; a function; `{"verifier": "numeric", "tolerance": 0.01, "weight":
    2}`; `{"verifier": "my_rewards.py:reward", "where": "processes"}` for a function that runs in worker processes; or a
    list of these.

    Raises:
        ConfigError: an unknown verifier or setting (with the nearest valid one), a wrong value, or a function with none
            of the known signatures.
        NameNotFound: a file, module or function that does not exist or cannot be loaded.
    """
    if isinstance(spec, (list, tuple)):
        return Weighted([_part(each, f"{where}.{i}") for i, each in enumerate(spec)])
    return Weighted([_part(spec, where)])


def computing(spec: Any) -> str | None:
    """Returns the name of a compute-bound verifier among those that `spec` describes, if all of them are named ones,
    which never wait; else None."""
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
        wrapped = Function(function, kind if isinstance(kind, str) else None)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    name = wrapped.name.rpartition(":")[2]
    if place == "here":
        return name, wrapped, weight
    if not isinstance(kind, str):
        raise ConfigError(f"{where}.where = 'processes' needs a function by name, as in my_rewards.py:reward")
    if wrapped.together or not wrapped.per_row:
        raise ConfigError(
            f"{where}.where = 'processes' is for functions of one answer, as f(completion, row), and {wrapped.name} is "
            "called in another way; write one, or leave where out"
        )
    return name, FunctionInProcess(kind), weight


class _Weight(Config):
    weight: float = pydantic.Field(default=1.0, allow_inf_nan=False)


def _only(settings: dict[str, Any], key: str) -> dict[str, Any]:
    """Removes `key` from `settings` and returns it as a dict, empty if it is not there."""
    return {key: settings.pop(key)} if key in settings else {}
