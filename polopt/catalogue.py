"""Finds the methods by name; says how two of them differ; cites them; runs their claims."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import pkgutil
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import polopt.methods
from polopt.absent import unknown_method
from polopt.errors import UserError
from polopt.method import KINDS, Method, with_article

if TYPE_CHECKING:  # torch comes with the first method that is built
    from polopt.algorithm import Algorithm
    from polopt.metrics import Metric
    from polopt.part import Part

Built = TypeVar("Built", bound="Part")


class UnknownMethod(UserError, ValueError):
    """There is no method of that name. The message says why, or which name was likely meant."""


class WrongKind(UserError, ValueError):
    """The method builds something else than what is needed. The message says what, and how the method is run."""


@functools.cache
def _modules() -> dict[str, str]:
    """slug -> module, from the file names alone: nothing is imported that nobody asked for."""
    found: dict[str, str] = {}
    for family in pkgutil.iter_modules(polopt.methods.__path__, "polopt.methods."):
        if family.ispkg:
            package = importlib.import_module(family.name)
            for file in pkgutil.iter_modules(package.__path__, family.name + "."):
                found[_slug(file.name.rpartition(".")[2])] = file.name
    return found


def _slug(name: str) -> str:
    return name.replace("_", "-").replace(".", "-").lower()


def slugs() -> list[str]:
    """The names of all methods."""
    return sorted(_modules())


def slug_of(name: str) -> str:
    """The method's name as the catalogue writes it ('-', '_' and '.' are the same).

    Raises:
        UnknownMethod: there is no such method; why, or the name that was likely meant.
    """
    key = _slug(name)
    if key not in _modules():
        raise UnknownMethod(f"there is no method {name!r:.100}{unknown_method(key, _modules())}")
    return key


def family_of(slug: str) -> str:
    """The room that the method changes above all: the folder of its file."""
    return _modules()[slug].split(".")[2]


def file_of(slug: str) -> Path:
    """The method's file."""
    family = importlib.import_module(_modules()[slug].rpartition(".")[0])
    return Path(family.__path__[0]) / f"{_modules()[slug].rpartition('.')[2]}.py"


def find(slug: str) -> Method[Any, Part]:
    """The method of that name ('-', '_' and '.' are the same).

    Raises:
        UnknownMethod: there is no such method; why, or the name that was likely meant.
    """
    key = slug_of(slug)
    module = importlib.import_module(_modules()[key])
    methods = [m for m in vars(module).values() if isinstance(m, Method) and m.slug == key]
    if len(methods) != 1:
        raise RuntimeError(f"{module.__name__} must define one method {key!r}, found {len(methods)}")
    return methods[0]


def part(slug: str, **settings: Any) -> Part:
    """Builds what a published method of any kind is, with its paper's defaults where nothing else is said.

    Raises:
        UnknownMethod, ValueError, TypeError: an unknown method or setting; the nearest name is given.
    """
    return find(slug)(**settings)


def method(slug: str, **settings: Any) -> Algorithm:
    """Builds the algorithm of a published method, with its paper's defaults where nothing else is said.

    Raises:
        WrongKind: the method is of another kind; how it is run.
        UnknownMethod, ValueError, TypeError: an unknown method or setting; the nearest name is given.
    """
    from polopt.algorithm import Algorithm

    return _of_kind(Algorithm, slug, settings)


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
    """What the method builds, which must be of the class that stands for one kind of method."""
    found = find(slug)
    if found.kind != cls.method_kind:
        raise WrongKind(_wrong_kind(found.slug, found.kind, cls.method_kind))
    built = found(**settings)
    assert isinstance(built, cls), "as its kind says"
    return built


def sentence(spec: str | Mapping[str, Any] | Algorithm) -> Algorithm:
    """The algorithm that somebody asks for: a method's name; `{name: grpo, clip: 0.1}`, with its settings; a function
    that returns one, as `my_method.py:build`; or an algorithm itself.

    Raises:
        WrongKind: the method builds no algorithm; how it is run.
        ValueError, TypeError: no such method or setting (the nearest one is named), or no algorithm.
    """
    from polopt.algorithm import Algorithm
    from polopt.part import build

    if isinstance(spec, Algorithm):
        return spec
    settings = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = settings.pop("name", None)
    if not isinstance(name, str) or not name:
        raise ValueError(f"a method needs its name, as grpo or {{name: grpo, clip: 0.1}}, found {name!r:.60}")
    settings = {str(key): build(value) for key, value in settings.items()}
    if ":" not in name:
        return method(name, **settings)
    built = own_method(name)(**settings)
    if not isinstance(built, Algorithm):
        raise WrongKind(_wrong_kind(name, built.method_kind, Algorithm.method_kind))
    return built


def own_method(name: str) -> Callable[..., Part]:
    """The function behind `my_method.py:build` or `package.module:build`, which builds a method of any kind.

    Raises:
        ValueError: there is none, or it is neither a function of that file nor declared to return what a method builds
            (an `Algorithm`, for one), and so is not called.
    """
    from polopt.part import locate, written_in

    found = locate(name)
    if isinstance(found, Method):
        return found
    try:
        declared = typing.get_type_hints(found).get("return") if inspect.isfunction(found) else None
    except NameError:
        declared = None
    # Loading a file has run its code already; a module that is installed may be about anything.
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
    run = KINDS[kind].replace("SLUG", name)  # type: ignore[index]
    return f"{name!r:.100} is {with_article(kind)}, expected {with_article(expected)}; it is run by {run}"


def cite(names: Iterable[str]) -> str:
    """BibTeX of the methods' papers."""
    return "\n\n".join(find(n).paper.bibtex(_slug(n)) for n in names)


Cost = Literal["fast", "slow"]


@dataclasses.dataclass(frozen=True)
class ClaimResult:
    """One claim, run. `dataclasses.asdict` of it is plain JSON data."""

    slug: str
    name: str
    statement: str
    baseline: str
    criterion: str
    measured: dict[str, float]
    holds: bool
    seconds: float
    cost: str
    note: str


def planned_claims(names: Iterable[str], cost: Cost | None = None) -> list[tuple[str, str]]:
    """(method, claim) of these methods; cost picks the fast or the slow ones, None all.

    Raises:
        ValueError: there is no such method; the nearest name is given.
    """
    return [(m.slug, c.name) for m in map(find, names) for c in m.claims if cost in (None, c.cost)]


def run_claim(which: tuple[str, str]) -> ClaimResult:
    """Run one claim of one method."""
    published = find(which[0])
    claim = next(claim for claim in published.claims if claim.name == which[1])
    finding, seconds = claim.check()
    return ClaimResult(
        slug=published.slug,
        name=claim.name,
        statement=claim.statement,
        baseline=claim.baseline,
        criterion=finding.criterion,
        measured={k: float(v) for k, v in finding.measured.items()},
        holds=bool(finding.holds),
        seconds=seconds,
        cost=claim.cost,
        note=finding.note,
    )


def run_claims(names: Iterable[str], cost: Cost | None = None) -> Iterator[ClaimResult]:
    """Run the claims of these methods, one by one.

    Raises:
        ValueError: as `planned_claims`.
    """
    return map(run_claim, planned_claims(names, cost))
