"""What verl's functions know while they call ours."""

from __future__ import annotations

import contextvars
import functools
import inspect
import sys
from collections.abc import Mapping
from typing import Any

# What those of verl's functions were called with that are running, by their names.
heard: contextvars.ContextVar[Mapping[str, dict[str, Any]]] = contextvars.ContextVar("heard", default={})  # noqa: B039


def overhear(where: Any, name: str) -> None:
    """What `name` of a module or class is called with can be read while it runs, by whoever of verl calls it."""
    original = getattr(where, name)
    signature = inspect.signature(original)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        token = heard.set({**heard.get(), name: dict(signature.bind(*args, **kwargs).arguments)})
        try:
            return original(*args, **kwargs)
        finally:
            heard.reset(token)

    for known in [where, *(module for key, module in sys.modules.items() if key.startswith("verl."))]:
        if vars(known).get(name) is original:
            setattr(known, name, wrapper)
