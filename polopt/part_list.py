"""The list of all parts and policies, with what they are called in two surveys' vocabularies."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import NamedTuple

from polopt import catalogue
from polopt.part import Part
from polopt.part_names import ROOMS, name_of
from polopt.tagging import declared_tags
from polopt.tags import Tag


class PartEntry(NamedTuple):
    """One part, or policy.

    name: as recipes write it, `credit.RelativeAdvantage`; of a policy where it is imported from.
    summary: the first sentence of its docstring.
    tags: which its class declares.
    """

    name: str
    room: str
    summary: str
    tags: tuple[Tag, ...]


def entries() -> list[PartEntry]:
    """Returns the parts of every room, the parts of single methods, and the policies, by name.

    It imports all of them.
    """
    found = [_entry(name_of(cls), cls) for cls in {*_of_rooms(), *_of_methods()}]
    return sorted([*found, *(_entry(f"policies.{cls.__name__}", cls) for cls in _policies())])


def _of_rooms() -> Iterator[type[Part]]:
    for room in ROOMS:
        if room != "methods":
            module = importlib.import_module(f"polopt.{room}")
            yield from (cls for name in module.__all__ if _is_part(cls := getattr(module, name)))


def _of_methods() -> Iterator[type[Part]]:
    for slug in catalogue.slugs():
        module = importlib.import_module(f"polopt.methods.{slug.replace('-', '_')}")
        yield from (cls for cls in vars(module).values() if _is_part(cls) and cls.__module__ == module.__name__)


def _is_part(thing: object) -> bool:
    return isinstance(thing, type) and issubclass(thing, Part)


def _policies() -> tuple[type, ...]:
    from polopt.policies.flow import FlowPolicy
    from polopt.policies.language import LanguagePolicy
    from polopt.policies.network import NetworkPolicy

    return FlowPolicy, LanguagePolicy, NetworkPolicy


def _entry(name: str, cls: type) -> PartEntry:
    paragraph = " ".join(inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0].split())
    return PartEntry(name, name.partition(".")[0], paragraph, declared_tags(cls))
