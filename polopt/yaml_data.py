"""YAML as plain data: text, numbers, booleans, null, lists and maps; everything else is refused with its line."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from polopt.errors import ConfigError

MOST_BYTES = 2**24
MOST_LEVELS = 100
# Number of values after expansion of aliases: a few lines of aliases to aliases expand to billions.
MOST_VALUES = 10**6
# YAML 1.2 reads 1e-5 as a number; PyYAML, which follows 1.1, as text.
_EXPONENT = re.compile(r"^[-+]?[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+$")
_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "seq", "map"))
_TIMESTAMP = "tag:yaml.org,2002:timestamp"


class YamlError(ConfigError):
    """A text is not YAML, or holds an unsupported value. The message names the text, the line and the value."""


class _Reader(yaml.SafeLoader):
    """The safe loader, without repeated keys, dates, tags, and unlimited depth."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._levels, self._values = 0, dict[int, int]()

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._levels += 1
        if self._levels > MOST_LEVELS:
            raise _problem(f"values are nested more than {MOST_LEVELS} deep", self.peek_event())
        alias = self.peek_event() if self.check_event(yaml.AliasEvent) else None
        node = super().compose_node(parent, index)
        if alias is not None and id(node) not in self._values:
            raise _problem(f"*{alias.anchor} is inside of what it names", alias)
        self._count(node)
        self._levels -= 1
        return node

    def _count(self, node: Any) -> None:
        """Counts the values that a node expands to."""
        if id(node) in self._values:
            return
        children: list[Any] = []
        if isinstance(node, yaml.MappingNode):
            _check_keys(node)
            children = [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            children = node.value
        if node.tag not in _TAGS and node.value != "<<":
            raise _problem(f"the tag {_short(node.tag)} is not plain data; write the value alone", node)
        self._values[id(node)] = 1 + sum(self._values[id(child)] for child in children)
        if self._values[id(node)] > MOST_VALUES:
            raise _problem(f"aliases expand to more than {MOST_VALUES:,} values", node)

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep=deep)
        except (ValueError, OverflowError, LookupError, AttributeError):
            raise _problem(f"{node.value!r:.40} is no {_short(node.tag).strip('!')}", node) from None
        if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
            raise _problem("a whole number has more than 64 bits", node)
        if isinstance(value, str) and not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
            raise _problem(f"{value!r:.40} holds half a surrogate pair, which is no character", node)
        return value


class _Writer(yaml.SafeDumper):
    """The safe dumper, which quotes text that `_Reader` would parse as a number, and repeats values without aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> Any:
        # PyYAML writes these line ends as they are and reads them back as other ones.
        style = '"' if any(end in data for end in "\x85\u2028\u2029") else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Writer.add_representer(str, _Writer.represent_str)


for _kind in (_Reader, _Writer):
    _kind.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))
_Reader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag != _TIMESTAMP]
    for first, found in _Reader.yaml_implicit_resolvers.items()
}


def read_yaml(text: str, name: str) -> Any:
    """Parses a YAML text to plain data; `name` is the text's name in errors.

    `1e3` is a number and `2026-01-01` is text. Keys are text or whole numbers.

    Raises:
        YamlError: no YAML, a key that occurs twice in one map, a tag, a key of another kind, an integer of more than 64
            bits, or more levels or values than any settings have.
    """
    try:
        loader = _Reader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.reader.ReaderError as error:
        raise YamlError(f"{name} is not YAML: it holds the control character {error.character:#x}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        kind = "" if error.context == _OURS else " is not YAML"
        raise YamlError(f"{name}{kind}{line}: {' '.join(str(error.problem).split())[:200]}") from None
    except RecursionError:
        raise YamlError(f"{name}: values are nested too deep") from None


def read_yaml_file(path: Path) -> Any:
    """Parses a YAML file, as `read_yaml`.

    Raises:
        YamlError: as `read_yaml`, or the file cannot be read, is too large, or is no UTF-8 text.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise YamlError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > MOST_BYTES:
        raise YamlError(f"{path} has more than {MOST_BYTES} bytes; settings are shorter")
    try:
        return read_yaml(content.decode("utf-8-sig"), path.name)
    except UnicodeDecodeError as error:
        raise YamlError(f"{path} is not UTF-8 text: byte {error.start} is {content[error.start]:#04x}") from None


def write_yaml(data: Any, width: int = 110) -> str:
    """Formats plain data as YAML that `read_yaml` reads back equal."""
    return yaml.dump(data, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=width)


# Marks the problems that are found here; PyYAML's own are syntax errors.
_OURS = "polopt"


def _problem(problem: str, place: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(context=_OURS, problem=problem, problem_mark=place.start_mark)


def _short(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!")[:60]


def _check_keys(node: yaml.MappingNode) -> None:
    """Checks that every key is text or a whole number, and occurs once in the map."""
    seen: set[Hashable] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode) or _short(key.tag) not in ("!!str", "!!int", "!!merge"):
            shown = (
                f"{key.value!r:.40} is {_short(key.tag).strip('!')}" if isinstance(key, yaml.ScalarNode) else "a list"
            )
            raise _problem(f"a key must be text or a whole number, and {shown}; put it in quotes", key)
        if (key.tag, key.value) in seen:
            raise _problem(f"the key {key.value!r:.60} occurs twice; leave one of the two", key)
        seen.add((key.tag, key.value))


def by_path(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the settings in nested maps, each with its dotted path: {a: {b: 1}} is ("a.b", 1); an empty map is a
    setting.
    """
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from by_path(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, value
