"""Plain data: the values that may be sent to a worker process."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import marshal
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from polopt.config import ConfigError

ATOMS = frozenset({type(None), bool, int, float, str, complex, bytes})


def plain(value: Any, where: str) -> Any:
    """Converts a value to None, bool, int, float, complex, str, bytes, list, tuple, set, frozenset and dict alone.

    numpy's numbers and texts become Python's, dataclasses become dictionaries, and fractions, decimals and dates become
    text: no scorer of reasoning_gym reads one of these.

    Raises:
        ConfigError: the value contains anything else.
    """
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind is list:  # lists and dicts of atoms are the most frequent values, hence the fast path
        return [one if type(one) in ATOMS else plain(one, where) for one in value]
    if kind is dict and all(type(key) is str for key in value):
        return {key: one if type(one) in ATOMS else plain(one, where) for key, one in value.items()}
    again = functools.partial(plain, where=where)
    if isinstance(value, Mapping):
        return {again(key): again(one) for key, one in value.items()}
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return kind(map(again, value))
    if isinstance(value, np.generic):
        return again(value.item())
    if isinstance(value, np.ndarray):
        return again(value.tolist())
    bases: tuple[type[Any], ...] = (int, float, str, bytes)
    for base in bases:
        if isinstance(value, base):
            return base(value)
    if isinstance(value, (Fraction, Decimal, datetime.date, datetime.time, datetime.timedelta)):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: again(getattr(value, field.name)) for field in dataclasses.fields(value)}
    raise ConfigError(f"{where} holds a {type(value).__name__}, which cannot be sent to a process: {value!r:.60}")


def key_of(scorer: Mapping[str, Any]) -> bytes:
    """Returns a hashable key, the same for equal scorers."""
    return marshal.dumps(plain(scorer, "a scorer"), 2)
