"""Differences between two parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from polopt.part import Part, Parts, to_plain


def diff(left: Part, right: Part) -> list[tuple[str, Any, Any]]:
    """Lists the differences of two parts: `(path, left's value, right's value)`, outermost difference first.

    Two parts of different classes differ as a whole; equal classes are compared setting by setting.

    Raises:
        TypeError: one of the two is not a part.
    """
    for part in (left, right):
        if not isinstance(part, Part):
            raise TypeError(f"diff compares two parts, found {part!r}; the algorithm of a method is po.method(name)")
    return list(_diff("", left, right))


def _diff(path: str, left: Any, right: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(left, Part) and type(left) is type(right):
        for name, value in left.settings().items():
            yield from _diff(f"{path}.{name}" if path else name, value, getattr(right, name))
    elif isinstance(left, Parts) and isinstance(right, Parts) and len(left) == len(right):
        for i, (a, b) in enumerate(zip(left, right, strict=True)):
            yield from _diff(f"{path}.{i}", a, b)
    elif to_plain(left) != to_plain(right):
        yield path, left, right
