"""The declared types of settings, and the error for a value that does not fit."""

from __future__ import annotations

import dataclasses
import functools
import math
import typing
from collections.abc import Callable
from typing import Annotated, Any

import pydantic


def _not_nan(value: float) -> float:
    if math.isnan(value):
        raise ValueError("nan is not a number")
    return value


# A setting that is a bound may be inf or -inf, for none. All other numbers are finite, and none is NaN.
Unbounded = Annotated[float, pydantic.Field(allow_inf_nan=True), pydantic.AfterValidator(_not_nan)]


@functools.cache
def setting_types(function: Callable[..., Any], names: tuple[str, ...]) -> dict[str, pydantic.TypeAdapter[Any]]:
    """Returns validators of the settings of a class or function, by their annotated types. Numbers are finite."""
    hints = typing.get_type_hints(function, include_extras=True)
    return {
        name: pydantic.TypeAdapter(hints[name], config={"arbitrary_types_allowed": True, "allow_inf_nan": False})
        if not dataclasses.is_dataclass(hints[name])
        else pydantic.TypeAdapter(hints[name])
        for name in names
    }


def checked_setting(adapter: pydantic.TypeAdapter[Any], value: Any, owner: str, name: str) -> Any:
    """Returns the value of a setting in its declared type.

    Raises:
        ValueError: it is of another type. owner, name: of the setting.
    """
    try:
        return adapter.validate_python(value)
    except pydantic.ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise ValueError(f"{owner}: setting {name!r} = {value!r:.100} is not valid: {problem:.160}") from None
