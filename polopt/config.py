"""Settings read from files: validated in full before anything runs, with one-sentence errors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import pydantic
from pydantic_core import PydanticCustomError

from polopt.errors import ConfigError
from polopt.names import nearest
from polopt.part import to_plain


class Config(pydantic.BaseModel):
    """Base of every group of settings: frozen; an unknown key is an error, never ignored.

    Numbers are finite, unless a setting's own type allows inf.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, allow_inf_nan=False)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            known = {field.alias or name for name, field in cls.model_fields.items()}
            for key in data:
                if key not in known:
                    hint = nearest(str(key), known)
                    raise PydanticCustomError(
                        "unknown_setting", "is not a setting{hint}", {"key": str(key), "hint": hint}
                    )
        return data


def plain_data(value: Any) -> Any:
    """Converts `value` to text, numbers, booleans, None, lists and maps, which YAML reads back equal: parts become maps
    and tuples lists.

    Raises:
        ValueError: NaN, a whole number of more than 64 bits, or anything else that YAML cannot hold; the path is named.
    """
    return _plain("", to_plain(value))


def _plain(path: str, value: Any) -> Any:
    place = f"at {path}: " if path else ""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise ValueError(f"{place}a whole number has more than 64 bits")
        return int(value)
    if isinstance(value, float):
        if math.isnan(value):
            raise ValueError(f"{place}.nan is not a number; give one")
        return float(value)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) and type(key) is not int:
                raise ValueError(f"{place}the key {_shown(key)} must be text or a whole number")
        return {key: _plain(f"{path}.{key}" if path else str(key), to_plain(each)) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(f"{path}.{i}" if path else str(i), to_plain(each)) for i, each in enumerate(value)]
    raise ValueError(f"{place}a {type(value).__name__} is no setting; give text, numbers, lists or maps")


# Settings that are interpreted elsewhere: a method's, an environment's, an architecture's.
PlainMap = Annotated[dict[Any, Any], pydantic.BeforeValidator(plain_data)]

Model = TypeVar("Model", bound=pydantic.BaseModel)


def parse(model: type[Model], data: Any, where: str) -> Model:
    """Validates `data` as a `model`. `where` names its origin in messages: a file, or a path into one.

    Numbers may come as text (YAML reads `1e-5` as text); nothing else is converted between kinds.

    Raises:
        ConfigError: one sentence on the first problem, with the dotted path of the setting, what was found
            and what was expected; an unknown key gets the nearest valid one.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where}: expected settings by name, found {_shown(data)}")
    try:
        return model.model_validate(dict(data))
    except pydantic.ValidationError as error:
        raise ConfigError(_sentence(error, data, where)) from None


def _sentence(error: pydantic.ValidationError, data: Any, where: str) -> str:
    problems = error.errors()
    first = problems[0]
    path = _path(first, data)
    place = ".".join([where, *map(str, path)])
    if first["type"] == "unknown_setting":
        return f"{place}.{first['ctx']['key']} {first['msg']}"
    if first["type"] == "missing":
        return f"{place} is missing; add it"
    # A union reports one problem per alternative, all about the same value.
    same = [e for e in problems if _path(e, data) == path]
    expected = list(dict.fromkeys(_expected(e["msg"]) for e in same))
    expected[1:] = [text.removeprefix("expected ") for text in expected[1:]]
    return f"{place} = {_shown(first['input'])}: {' or '.join(expected)}"


def _path(problem: Any, data: Any) -> list[str | int]:
    """Returns the problem's location in the user's data, without the names that pydantic gives to alternatives."""
    path: list[str | int] = []
    for step in problem["loc"]:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            continue
        path.append(step)
    if problem["type"] == "missing":
        path.append(problem["loc"][-1])
    return path


def _expected(message: str) -> str:
    for prefix in ("Input should be ", "Value error, ", "Assertion failed, "):
        if message.startswith(prefix):
            rest = message.removeprefix(prefix)
            return f"expected {rest}" if prefix == "Input should be " else rest
    return message[:1].lower() + message[1:]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
