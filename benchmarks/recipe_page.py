"""Every field of a recipe as a page: docs/recipe.md, made from the settings' types, defaults and docstrings.

python -m benchmarks.recipe_page
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import types
import typing
from collections.abc import Iterator, Sequence
from typing import Any

import pydantic
from pydantic.fields import FieldInfo

from benchmarks.spec import HERE
from polopt.config import Config
from polopt.training.language_recipe import LanguageRecipe
from polopt.worlds import recipe as worlds

PAGE = HERE.parent / "docs" / "recipe.md"
INTRO = """\
# The recipe

A recipe is a YAML file that determines a run. `polopt recipes laptop > mine.yaml` gives one to begin from,
`polopt train mine.yaml --dry-run` shows it with every default and what it will take, and `--set stages.rl.steps=50`
changes a field by its path. A field that does not exist is refused. This page is made by
`python -m benchmarks.recipe_page`."""
WORLDS = """\
## tasks

`kind` chooses the world; [your own](../README.md) is `kind: file.py:name`. Every world takes
`texts` and `seed` besides. The classes beside them hold the details."""
# Fields that merely name the kind of their group.
KINDS = ("engine", "where")


def page() -> str:
    """The whole page."""
    parts = [INTRO]
    for place, model in SECTIONS:
        intro, meanings = described(model)
        rows = list(_rows(model, meanings))
        parts += [f"## {place or 'Top level'}", intro, *([_table(rows)] if rows else [])]
    parts.append(WORLDS)
    for world in _worlds():
        kind = world.model_fields["kind"].default
        intro, meanings = described(world)
        own = [row for row in _rows(world, meanings) if row[0] not in ("`kind`", "`texts`", "`seed`")]
        columns = 4 if any(row[3] for row in own) else 3
        parts += [f"### kind: {kind}", intro, _table([row[:columns] for row in own])]
    return "\n\n".join(parts) + "\n"


def described(model: type) -> tuple[str, dict[str, str]]:
    """Returns the docstring's account of the whole and the meaning of each field, those of its bases included."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__[1:]):
        if base.__module__.startswith("polopt.training") and base.__doc__:
            found |= _described(base)[1]
    intro, own = _described(model)
    return intro, found | own


def _described(model: type) -> tuple[str, dict[str, str]]:
    """As `described`, of the docstring alone: `name: meaning`, where a line or a sentence begins."""
    names = "|".join(fields(model))
    text = re.sub(r"\n\s*", "\n", inspect.cleandoc(model.__doc__ or "").strip())
    begins = list(re.finditer(rf"(?:^|(?<=\n)|(?<=\. ))((?:{names})(?:, (?:{names}))*): ", text)) if names else []
    intro = text[: begins[0].start()] if begins else text
    found: dict[str, str] = {}
    for i, begin in enumerate(begins):
        end = begins[i + 1].start() if i + 1 < len(begins) else len(text)
        for name in begin[1].split(", "):
            found[name] = _prose(text[begin.end() : end])
    return _prose(intro), found


def fields(model: type) -> dict[str, FieldInfo]:
    """The fields of a group of settings; what merely names its kind is none."""
    if not issubclass(model, pydantic.BaseModel):
        hints = typing.get_type_hints(model)
        found = {}
        for field in dataclasses.fields(model):
            default = ... if field.default is dataclasses.MISSING else field.default
            found[field.name] = FieldInfo.from_annotated_attribute(hints[field.name], default)
        return found
    return {name: field for name, field in model.model_fields.items() if name not in KINDS}


def sections(place: str, model: type, seen: set[type]) -> Iterator[tuple[str, type]]:
    """Where each group of settings stands in a recipe, each once, by the types of the fields that lead there."""
    seen.add(model)
    yield place, model
    for name, field in fields(model).items():
        inner = f"{place}.{name}" if place else name
        inner += ".NAME" if typing.get_origin(field.annotation) is dict else ""
        for group in groups(field.annotation):
            if group not in seen:
                kinds = getattr(group, "model_fields", {})
                kind = "".join(f", {key}: {kinds[key].default}" for key in KINDS if key in kinds)
                yield from sections(inner + kind, group, seen)


def groups(annotation: Any) -> list[type]:
    """The groups of settings in a type."""
    if isinstance(annotation, type) and (
        issubclass(annotation, pydantic.BaseModel) or dataclasses.is_dataclass(annotation)
    ):
        return [annotation]
    return [group for inner in typing.get_args(annotation) for group in groups(inner)]


def _rows(model: type, meanings: dict[str, str]) -> Iterator[list[str]]:
    for name, field in fields(model).items():
        yield [f"`{name}`", _type(field.annotation, field.metadata), _default(field), meanings.get(name, "")]


def _table(rows: Sequence[Sequence[str]]) -> str:
    head = ["field", "type", "default", "meaning"][: len(rows[0])]
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"|{'|'.join(line)}|" for line in lines)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    value = field.get_default(call_default_factory=True)
    if type(value) in PLACES:
        return "its own defaults"
    return "null" if value is None else f"`{json.dumps(list(value) if isinstance(value, tuple) else value)}`"


def _type(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """A type as people say it, with its bounds."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        bounds = [m for found in inner[1:] for m in getattr(found, "metadata", [found])]
        return _type(inner[0], [*bounds, *metadata])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_type(part, metadata) for part in inner))
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in inner)
    if origin is tuple:
        return f"list of {_type(inner[0])}" + ("" if inner[-1] is ... else f", {len(inner)} of them")
    if origin is list:
        return f"list of {_type(inner[0])}"
    if origin is dict:
        return f"by name, {_type(inner[1])}" if inner[1] is not Any else "settings by name"
    if annotation in PLACES:
        return f"[settings](#{_anchor(PLACES[annotation])})"
    if isinstance(annotation, type) and issubclass(annotation, Config):
        fields = annotation.model_fields.items()
        return f"{{{', '.join(f'{name}: {_type(field.annotation, field.metadata)}' for name, field in fields)}}}"
    plain = {bool: "true or false", int: "whole number", float: "number", str: "text", type(None): "null", Any: "any"}
    return plain[annotation] + (_bounds(metadata) if annotation in (int, float) else "")


def _bounds(metadata: Sequence[Any]) -> str:
    signs = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    found = [f"{word} {getattr(m, key)}" for m in metadata for key, word in signs.items() if hasattr(m, key)]
    return f", {' and '.join(found)}" if found else ""


def _anchor(place: str) -> str:
    """The heading's address, as GitHub makes it."""
    return re.sub(r"[^a-z0-9_ -]", "", (place or "top level").lower()).replace(" ", "-")


def _prose(text: str) -> str:
    return re.sub(r"\bNone\b", "null", " ".join(text.split()))


def _worlds() -> list[type[worlds.World]]:
    """The worlds that come with polopt, in the order of the file."""
    found = [model for model in vars(worlds).values() if inspect.isclass(model) and issubclass(model, worlds.World)]
    kinds = [m for m in found if "kind" in m.model_fields and isinstance(m.model_fields["kind"].default, str)]
    return [m for m in kinds if m.model_fields.keys() - {"kind", "texts", "seed"}]


SECTIONS = tuple(sections("", LanguageRecipe, set()))
PLACES = {model: place for place, model in SECTIONS}


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
