"""The catalogue of methods: lookup by name, citations, and their claims."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import polopt.methods
from polopt.absent import unknown_method
from polopt.claim import Claim, Mutation
from polopt.errors import UserError
from polopt.method import KINDS, Method, usage_of, with_article

if TYPE_CHECKING:  # torch comes with the first method that is built
    from polopt.algorithm import Algorithm
    from polopt.metrics import Metric
    from polopt.part import Part
    from polopt.solvers import Solver

Built = TypeVar("Built", bound="Part")
Found = TypeVar("Found")


HERE = Path(__file__).parent


class UnknownMethod(UserError, ValueError):
    """There is no method of that name. The message holds the reason, or the name that was likely meant."""


class WrongKind(UserError, ValueError):
    """The method builds another kind of object than needed. The message names the kind, and how the method is run."""


@functools.cache
def _modules() -> dict[str, str]:
    """Maps slugs to modules, from the file names alone, without importing any."""
    return {_slug(m.name): f"polopt.methods.{m.name}" for m in pkgutil.iter_modules(polopt.methods.__path__)}


def _slug(name: str) -> str:
    return name.replace("_", "-").replace(".", "-").lower()


def slugs() -> list[str]:
    """Returns the names of all methods."""
    return sorted(_modules())


def slug_of(name: str) -> str:
    """Returns the method's name as the catalogue writes it ('-', '_' and '.' are the same).

    Raises:
        UnknownMethod: there is no such method; why, or the name that was likely meant.
    """
    key = _slug(name)
    if key not in _modules():
        raise UnknownMethod(f"there is no method {name!r:.100}{unknown_method(key, _modules())}")
    return key


def files_of(slug: str) -> tuple[Path, ...]:
    """Returns the method's file and, if there is one, that of its claims."""
    name = f"{_modules()[slug].rpartition('.')[2]}.py"
    return tuple(file for folder in ("methods", "claims") if (file := HERE / folder / name).is_file())


def find(slug: str) -> Method[Any, Part]:
    """Returns the method of that name ('-', '_' and '.' are the same).

    Raises:
        UnknownMethod: there is no such method; why, or the name that was likely meant.
    """
    key = slug_of(slug)
    module = importlib.import_module(_modules()[key])
    methods = [m for m in vars(module).values() if isinstance(m, Method) and m.slug == key]
    if len(methods) != 1:
        raise RuntimeError(f"{module.__name__} must define one method {key!r}, found {len(methods)}")
    return methods[0]


def claims_of(slug: str) -> tuple[Claim, ...]:
    """Returns the claims of the method's paper, in the order of their file, which alone imports the programs.

    Raises:
        UnknownMethod: as `find`.
    """
    return _in_claims(slug, Claim)


def mutations_of(slug: str) -> tuple[Mutation, ...]:
    """Returns the bugs that can be planted in the method, in the order of the file of its claims.

    Raises:
        UnknownMethod: as `find`.
    """
    return _in_claims(slug, Mutation)


def _in_claims(slug: str, cls: type[Found]) -> tuple[Found, ...]:
    """Returns the objects of a class in the file of the method's claims; none without such a file."""
    method_file, *claims_file = files_of(slug_of(slug))
    if not claims_file:
        return ()
    module = importlib.import_module(f"polopt.claims.{method_file.stem}")
    return tuple(found for found in vars(module).values() if isinstance(found, cls))


def part(slug: str, **settings: Any) -> Part:
    """Builds the part of a published method of any kind, with its paper's defaults for settings not given.

    Raises:
        UnknownMethod, ValueError, TypeError: an unknown method or setting; the nearest name is given.
    """
    return find(slug)(**settings)


def method(slug: str, **settings: Any) -> Algorithm:
    """Builds the algorithm of a published method, with its paper's defaults for settings not given.

    Raises:
        WrongKind: the method is of another kind; how it is run.
        UnknownMethod, ValueError, TypeError: an unknown method or setting; the nearest name is given.
    """
    from polopt.algorithm import Algorithm

    return _of_kind(Algorithm, slug, settings)


def solver(slug: str, **settings: Any) -> Solver:
    """Builds the solver of a published method, as `method` builds an algorithm.

    Raises:
        WrongKind, UnknownMethod, ValueError, TypeError: as `method`.
    """
    from polopt.solvers import Solver

    return _of_kind(Solver, slug, settings)


def metric(name: str, **settings: Any) -> Metric:
    """Builds the metric of a published method, or of a function that returns one, as `my_metric.py:build`.

    Raises:
        WrongKind: the method is of another kind; how it is run.
        UnknownMethod, ValueError, TypeError: as `method`.
    """
    from polopt.metrics import Metric
    from polopt.part import build

    given = {key: build(value) for key, value in settings.items()}
    if ":" not in name:
        return _of_kind(Metric, name, given)
    built = own_method(name)(**given)
    if not isinstance(built, Metric):
        raise WrongKind(_wrong_kind(name, built.method_kind, Metric.method_kind))
    return built


def _of_kind(cls: type[Built], slug: str, settings: Mapping[str, Any]) -> Built:
    """Builds a method's part, which must be of class `cls`."""
    found = find(slug)
    if found.kind != cls.method_kind:
        raise WrongKind(_wrong_kind(found.slug, found.kind, cls.method_kind))
    built = found(**settings)
    assert isinstance(built, cls), "its kind implies the class"
    return built


def sentence(spec: str | Mapping[str, Any] | Algorithm) -> Algorithm:
    """Builds an algorithm from its specification: a method's name; `{name: grpo, clip: 0.1}`, with its settings; a
    function that returns one, as `my_method.py:build`; or an algorithm itself.

    Raises:
        WrongKind: the method builds no algorithm; how it is run.
        ValueError, TypeError: no such method or setting (the nearest one is named), or no algorithm.
    """
    from polopt.algorithm import Algorithm

    return specified(Algorithm, spec)


def specified(cls: type[Built], spec: str | Mapping[str, Any] | Built) -> Built:
    """Builds a part of class `cls`, such as `solvers.Solver`, from its specification, as `sentence` does."""
    from polopt.part import build

    if isinstance(spec, cls):
        return spec
    settings = {"name": spec} if isinstance(spec, str) else dict(spec)  # type: ignore[arg-type]
    name = settings.pop("name", None)
    if not isinstance(name, str) or not name:
        raise ValueError(f"a method needs its name, as grpo or {{name: grpo, clip: 0.1}}, found {name!r:.60}")
    settings = {str(key): build(value) for key, value in settings.items()}
    if ":" not in name:
        return _of_kind(cls, name, settings)
    built = own_method(name)(**settings)
    if not isinstance(built, cls):
        raise WrongKind(_wrong_kind(name, built.method_kind, cls.method_kind))
    return built


def own_method(name: str) -> Callable[..., Part]:
    """Loads the function `my_method.py:build` or `package.module:build`, which builds a method of any kind.

    Raises:
        ValueError: there is none, or it is neither a function of that file nor declared to return what a method builds
            (an `Algorithm`, for one), and so is not called.
    """
    from polopt.part_names import locate, written_in

    found = locate(name)
    if isinstance(found, Method):
        return found
    try:
        declared = typing.get_type_hints(found).get("return") if inspect.isfunction(found) else None
    except NameError:
        declared = None
    # Loading a file has run its code already; an installed module may hold unrelated functions.
    its_own = inspect.isfunction(found) and written_in(found, name)
    if getattr(declared, "method_kind", None) not in KINDS and not its_own:
        raise ValueError(f"{name!r:.100} is not a method: expected a function declared as def build(...) -> Algorithm")
    return functools.partial(_own, name, found)


def _own(name: str, build: Callable[..., Any], **settings: Any) -> Part:
    from polopt.part import Part

    try:
        inspect.signature(build).bind(**settings)
    except TypeError as error:
        raise ValueError(f"{name!r:.100} is called with {', '.join(settings) or 'no settings'}, but {error}") from None
    built = build(**settings)
    if not isinstance(built, Part) or built.method_kind not in KINDS:
        raise ValueError(f"{name!r:.100} returned {built!r:.60}, expected an Algorithm")
    return built


def _wrong_kind(name: str, kind: Any, expected: str | None) -> str:
    usage = usage_of(kind, name)
    return f"{name!r:.100} is {with_article(kind)}, expected {with_article(expected)}; {usage}"


def cite(names: Iterable[str]) -> str:
    """Returns the BibTeX of the methods' papers."""
    return "\n\n".join(find(n).paper.bibtex(_slug(n)) for n in names)
