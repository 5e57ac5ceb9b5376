"""The shapes that polopt.ops annotates, checked at every call, and worked out once for calls that are alike."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Hashable
from types import ModuleType
from typing import Any

from torch import Tensor

PLAIN = (bool, int, float, str, type(None))


class _Unknown(Exception):
    """A value of which more may be checked than its kind."""


def _kind(value: Any) -> Hashable:
    """All that a check can tell of a value."""
    if isinstance(value, Tensor):
        return type(value), value.shape, value.dtype
    if isinstance(value, tuple):
        return tuple(map(_kind, value))
    if isinstance(value, PLAIN):
        return type(value), value
    raise _Unknown


def check_once(checked: Callable[..., Any]) -> Callable[..., Any]:
    """A pure function whose calls are checked as `checked` does, which has it as `__wrapped__`. Of a call whose
    arguments and results are of the same kinds as those of one that passed, the check would find the same."""
    unchecked, passed = checked.__wrapped__, set[Hashable]()  # type: ignore[attr-defined]

    @functools.wraps(unchecked)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            given = (_kind(args), tuple((name, _kind(value)) for name, value in kwargs.items()))
            if given in passed:
                found = unchecked(*args, **kwargs)
                if (given, _kind(found)) in passed:
                    return found
            found = checked(*args, **kwargs)
            passed.update((given, (given, _kind(found))))
            return found
        except _Unknown:
            return checked(*args, **kwargs)

    return call


def check_each_kind_once(package: ModuleType) -> None:
    """Puts `check_once` around the checked functions of a package, wherever its modules have them."""
    modules = [
        m for name, m in sys.modules.items() if name == package.__name__ or name.startswith(f"{package.__name__}.")
    ]
    once: dict[int, Callable[..., Any]] = {}
    for module in modules:
        for name, value in list(vars(module).items()):
            if hasattr(value, "__wrapped__") and getattr(value, "__module__", "").startswith(package.__name__):
                if id(value) not in once:
                    once[id(value)] = check_once(value)
                setattr(module, name, once[id(value)])
