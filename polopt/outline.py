"""Outlines of algorithms as indented lines with every setting, defaults included, which `repr` leaves out."""

from __future__ import annotations

from typing import Any, NamedTuple

from polopt.part import Part, Parts
from polopt.part_names import name_of


class Line(NamedTuple):
    """One line: its indentation depth, the setting's name, its value."""

    depth: int
    name: str
    value: str


def outline(part: Part) -> list[Line]:
    """Returns the settings of a part, line by line. A part without parts inside is one line, as the call that builds
    it.
    """
    return [line for name, value in part.settings().items() for line in _lines(0, name, value)]


def _lines(depth: int, name: str, value: Any) -> list[Line]:
    if isinstance(value, Parts):
        if not len(value):
            return [Line(depth, name, "none")]
        return [line for i, part in enumerate(value) for line in _lines(depth, f"{name}.{i}", part)]
    if not isinstance(value, Part):
        return [Line(depth, name, "none" if value is None or value == [] or value == () else repr(value))]
    settings = value.settings()
    simple = {k: v for k, v in settings.items() if not isinstance(v, (Part, Parts))}
    if len(simple) == len(settings):
        return [Line(depth, name, _call(value, settings))]
    # Empty settings may hold parts, so they are listed below, with the parts.
    plain = {k: v for k, v in simple.items() if v is not None and v not in ([], ())}
    below = [line for k, v in settings.items() if k not in plain for line in _lines(depth + 1, k, v)]
    return [Line(depth, name, _call(value, plain)), *below]


def _call(part: Part, settings: dict[str, Any]) -> str:
    return f"{name_of(type(part))}({', '.join(f'{name}={value!r}' for name, value in settings.items())})"
