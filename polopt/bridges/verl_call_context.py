"""Records the arguments of verl's functions while these run, for the functions of polopt that they call."""

from __future__ import annotations

import contextvars
import functools
import inspect
import sys
from collections.abc import Mapping
from typing import Any

# The arguments of the wrapped functions of verl that are running, by the functions' names.
call_arguments: contextvars.ContextVar[Mapping[str, dict[str, Any]]] = contextvars.ContextVar(
    "call_arguments",
    default={},  # noqa: B039
)


def record_arguments(where: Any, name: str) -> None:
    """Wraps `name` of a module or class so that its arguments can be read in `call_arguments` while it runs.

    The wrapper also replaces the function in the modules of verl that have imported it.
    """
    original = getattr(where, name)
    signature = inspect.signature(original)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        token = call_arguments.set({**call_arguments.get(), name: dict(signature.bind(*args, **kwargs).arguments)})
        try:
            return original(*args, **kwargs)
        finally:
            call_arguments.reset(token)

    for known in [where, *(module for key, module in sys.modules.items() if key.startswith("verl."))]:
        if vars(known).get(name) is original:
            setattr(known, name, wrapper)
