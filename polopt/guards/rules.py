"""Privilege rules from the plain data of a recipe or a YAML file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polopt.errors import ConfigError
from polopt.guards.privileges import PrivilegeRule
from polopt.names import nearest
from polopt.part import settings_of
from polopt.yaml_data import read_yaml_file


def privilege_rules(data: Any, where: str = "rules") -> list[PrivilegeRule]:
    """Builds rules from a list of mappings with the settings of `PrivilegeRule`. where: the list's name in messages.

    Raises:
        ConfigError: no list, an unknown setting (the nearest one is named) or a wrong value; the rule's place is named.
    """
    if not isinstance(data, (list, tuple)):
        raise ConfigError(f"{where} must be a list of rules such as {{tool: send, effect: allow}}, found {data!r:.60}")
    return [_rule(each, f"{where}[{i}]") for i, each in enumerate(data)]


def _rule(data: Any, where: str) -> PrivilegeRule:
    if isinstance(data, PrivilegeRule):
        return data
    if not isinstance(data, Mapping) or "tool" not in data:
        raise ConfigError(f"{where} must be a rule such as {{tool: send, effect: allow}}, found {data!r:.60}")
    known = {field.name for field in settings_of(PrivilegeRule)}
    for key in data:
        if key not in known | {"part"}:
            raise ConfigError(f"{where}.{key} is not a setting of a rule{nearest(str(key), known)}")
    settings = {key: value for key, value in data.items() if key != "part"}
    if "update" in settings:
        settings["update"] = privilege_rules(settings["update"], f"{where}.update")
    try:
        return PrivilegeRule(**settings)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None


def read_rules(path: str | Path) -> list[PrivilegeRule]:
    """Reads the rules of a YAML file, a list as for `privilege_rules`.

    Raises:
        ConfigError: the file does not exist, is no YAML, or holds no rules.
    """
    if not Path(path).is_file():
        raise ConfigError(f"{path} does not exist; give a YAML file with a list of rules")
    return privilege_rules(read_yaml_file(Path(path)), str(path))
