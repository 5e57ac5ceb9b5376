"""Names of parts, classes and functions: from object to name, and from name to object."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from polopt.errors import UserError
from polopt.names import nearest

ROOMS = (
    "features",
    "sampling",
    "rewards",
    "credit",
    "objectives",
    "networks",
    "metrics",
    "solvers",
    "schedules",
    "teachers",
    "updates",
    "guards",
    "backends",
    "methods",
)


class NameNotFound(UserError, ValueError):
    """A part, class or function cannot be found by its name, or the file that holds it cannot be loaded."""


def name_of(cls: type) -> str:
    """Returns `credit.RelativeAdvantage` for polopt's own parts, `methods.bnpo.BetaScale` for those that one method
    alone has, and `package.module:Class` for all others."""
    place = cls.__module__.removeprefix("polopt.")
    room, _, _ = place.partition(".")
    if cls.__module__.startswith("polopt.") and room in ROOMS:
        return f"{place if room == 'methods' else room}.{cls.__qualname__}"
    if cls.__module__ == "polopt.algorithm":
        return cls.__qualname__
    module = sys.modules[cls.__module__]
    return f"{getattr(module, '_polopt_path', cls.__module__)}:{cls.__qualname__}"


def locate(name: str) -> Callable[..., Any]:
    """Loads the class or function of a name.

    `credit.RelativeAdvantage` and `methods.bnpo.BetaScale` are polopt's; `package.module:Thing` is imported;
    `path/to/file.py:Thing` is loaded from that file. Importing and loading execute the module's code.

    Raises:
        NameNotFound: there is none (the nearest name is given), or the file or module raises when it is loaded.
    """
    if not isinstance(name, str):
        raise NameNotFound(f"{name!r:.60} is not a name: expected room.Class, package.module:Thing or file.py:Thing")
    if ":" in name:
        module_name, _, attribute = name.rpartition(":")
        module = load_file(Path(module_name)) if module_name.endswith(".py") else _import(module_name, name)
        if not hasattr(module, attribute):
            known = [n for n, v in vars(module).items() if not n.startswith("_") and not inspect.ismodule(v)]
            raise NameNotFound(f"{name!r:.100}: {module_name} has no {attribute!r:.60}{nearest(attribute, known)}")
        return getattr(module, attribute)
    if name == "Algorithm":
        return importlib.import_module("polopt.algorithm").Algorithm
    room, _, attribute = name.partition(".")
    if room not in ROOMS:
        raise NameNotFound(f"{name!r:.100} is not a part's name: expected room.Class{nearest(room, ROOMS)}")
    if room == "methods":
        method, _, attribute = attribute.partition(".")
        return getattr(_with_part(f"methods.{method}", attribute, parts_of(method)), attribute)
    module = importlib.import_module(f"polopt.{room}")
    return getattr(_with_part(room, attribute, module.__all__), attribute)


def _with_part(place: str, attribute: str, known: Sequence[str]) -> Any:
    """Returns the module `polopt.<place>`. Raises NameNotFound if the part is not one of the known ones."""
    if attribute not in known:
        elsewhere = _places_of(attribute) if attribute.isidentifier() else []
        meant = f"; it is {' or '.join(elsewhere)}" if elsewhere else nearest(attribute, known)
        raise NameNotFound(f"polopt.{place} has no part {attribute!r:.60}{meant}")
    return importlib.import_module(f"polopt.{place}")


def _places_of(attribute: str) -> list[str]:
    """Returns the names of polopt's parts of a class name, from the text of their files, without importing them."""
    found = []
    for file in sorted(Path(__file__).parent.glob("*/**/*.py")):
        place = file.relative_to(Path(__file__).parent).with_suffix("").parts
        if place[0] in ROOMS and re.search(rf"^class {attribute}\b", file.read_text(encoding="utf-8"), re.MULTILINE):
            found.append(".".join([*(place if place[0] == "methods" else place[:1]), attribute]))
    return found


def parts_of(method: str) -> list[str]:
    """Returns the names of the parts that a method's file defines, as `BetaScale` of `bnpo`.

    Raises:
        NameNotFound: there is no file of the method.
    """
    files = [file.stem for file in (Path(__file__).parent / "methods").glob("[a-z]*.py")]
    if method not in files:
        raise NameNotFound(f"polopt.methods has no file {method!r:.60}{nearest(method, files)}")
    module = importlib.import_module(f"polopt.methods.{method}")
    return [n for n, cls in vars(module).items() if isinstance(cls, type) and cls.__module__ == module.__name__]


def written_in(thing: Any, name: str) -> bool:
    """Tests whether a class or function is defined in the file of `name`, as path/to/file.py:Thing."""
    path = getattr(sys.modules.get(thing.__module__), "_polopt_path", None)
    return path is not None and Path(path).resolve() == Path(name.rpartition(":")[0]).resolve()


def _import(module_name: str, name: str) -> Any:
    if not all(step.isidentifier() for step in module_name.split(".")):
        raise NameNotFound(f"{name!r:.100}: {module_name!r:.60} is no module's name; give one, or a path ending in .py")
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        file = f"{module_name.replace('.', '/')}.py"
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            reason = f"{module_name} needs {error.name}, which is not installed"
        elif Path(file).is_file():
            reason = f"there is no module {module_name}; did you mean {file + name[len(module_name) :]!r}?"
        else:
            reason = f"there is no module {error.name}; give an importable module or a path ending in .py"
        raise NameNotFound(f"{name!r:.100}: {reason}") from None
    except (Exception, SystemExit) as error:
        raise NameNotFound(f"{name!r:.100}: {module_name} cannot be loaded: {described(error)}") from error


def described(error: BaseException, file: str | Path | None = None) -> str:
    """Describes an exception in a few words, with the line that raised it: the last one in `file`, if it is involved.

    `ZeroDivisionError: division by zero (rewards.py, line 3)`
    """
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, SyntaxError):
        return text  # which ends with the file and line
    frames = traceback.extract_tb(error.__traceback__)
    inside = [f for f in frames if file is not None and Path(f.filename) == Path(file)] or frames
    return f"{text} ({Path(inside[-1].filename).name}, line {inside[-1].lineno})" if inside else text


def load_file(path: Path) -> Any:
    """Loads a user's Python file as a module, once in a process.

    Raises:
        NameNotFound: there is none, or it raises.
    """
    if not path.is_file():
        raise NameNotFound(f"{path} does not exist; name a Python file, as in my_part.py:MyPart")
    # The same in every process, so that what is pickled in one can be read in another.
    key = f"polopt_user_{path.stem}_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    if key not in sys.modules:
        spec = importlib.util.spec_from_file_location(key, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        vars(module)["_polopt_path"] = str(path)
        sys.modules[key] = module
        try:
            spec.loader.exec_module(module)
        except BaseException as error:
            del sys.modules[key]  # a partly loaded module must not count as loaded at the next attempt
            if not isinstance(error, (Exception, SystemExit)):
                raise
            raise NameNotFound(f"{path} cannot be loaded: {described(error, path)}") from error
    return sys.modules[key]
