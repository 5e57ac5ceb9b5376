"""The catalogue of methods: lookup by name, citations, and their claims."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import inspect
import os
import pkgutil
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import polopt.methods
from polopt.absent import unknown_method
from polopt.errors import UserError
from polopt.method import KINDS, Claim, ClaimKind, Method, usage_of, with_article

if TYPE_CHECKING:  # torch comes with the first method that is built
    from polopt.algorithm import Algorithm
    from polopt.metrics import Metric
    from polopt.part import Part
    from polopt.solvers import Solver

Built = TypeVar("Built", bound="Part")


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
    method_file, *claims_file = files_of(slug_of(slug))
    if not claims_file:
        return ()
    module = importlib.import_module(f"polopt.claims.{method_file.stem}")
    return tuple(found for found in vars(module).values() if isinstance(found, Claim))


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


Cost = Literal["fast", "slow"]


@dataclasses.dataclass(frozen=True)
class ClaimResult:
    """The result of one claim. `dataclasses.asdict` of it is plain JSON data."""

    slug: str
    name: str
    kind: ClaimKind
    statement: str
    baseline: str
    criterion: str
    measured: dict[str, float]
    holds: bool
    seconds: float
    cost: str
    note: str


def planned_claims(names: Iterable[str], cost: Cost | None = None) -> list[tuple[str, str]]:
    """Lists (method, claim) of these methods; cost selects the fast or the slow ones, None all.

    Raises:
        ValueError: there is no such method; the nearest name is given.
    """
    return [(slug, c.name) for slug in map(slug_of, names) for c in claims_of(slug) if cost in (None, c.cost)]


def run_claim(which: tuple[str, str]) -> ClaimResult:
    """Runs one claim of one method."""
    slug, name = slug_of(which[0]), which[1]
    claim = next(claim for claim in claims_of(slug) if claim.name == name)
    finding, seconds = claim.check()
    return ClaimResult(
        slug=slug,
        name=claim.name,
        kind=claim.kind,
        statement=claim.statement,
        baseline=claim.baseline,
        criterion=finding.criterion,
        measured={k: float(v) for k, v in finding.measured.items()},
        holds=bool(finding.holds),
        seconds=seconds,
        cost=claim.cost,
        note=finding.note,
    )


@dataclasses.dataclass(frozen=True)
class SeededClaim:
    """A claim on several seeds. rows: the result of each, the first with the claim's own seeds.

    Raises:
        ValueError: no results.
    """

    rows: tuple[ClaimResult, ...]

    def __post_init__(self) -> None:
        if not self.rows:
            raise ValueError("SeededClaim: needs a result or more, found none")

    @property
    def held(self) -> int:
        """Returns the number of seeds on which the claim holds."""
        return sum(row.holds for row in self.rows)


def run_on_seeds(planned: Sequence[tuple[str, str]], seeds: int) -> Iterator[SeededClaim]:
    """Runs claims on their own seeds and on `seeds` - 1 fresh ones, see `lab.fresh_seeds`; each seed in processes of
    its own. Yields the claims in their order, each when its last seed is done. A claim that raises on a fresh seed does
    not hold there, and its note says what was raised.

    Raises:
        ValueError: seeds < 1.
    """
    if seeds < 1:
        raise ValueError(f"run_on_seeds: seeds must be at least 1, found {seeds}")
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with contextlib.ExitStack() as stack:
        share = max(1, (os.cpu_count() or 1) // seeds)
        pools = [
            stack.enter_context(
                ProcessPoolExecutor(share, mp_context=get_context("spawn"), initializer=_begin_seed, initargs=(number,))
            )
            for number in range(seeds)
        ]
        found = [pool.map(run_claim if number == 0 else _run_fresh, planned) for number, pool in enumerate(pools)]
        for rows in zip(*found, strict=True):
            yield SeededClaim(rows)


def _run_fresh(which: tuple[str, str]) -> ClaimResult:
    try:
        return run_claim(which)
    except Exception as error:
        claim = next(claim for claim in claims_of(which[0]) if claim.name == which[1])
        note = f"raised {type(error).__name__}: {error}"
        return ClaimResult(
            which[0], claim.name, claim.kind, claim.statement, claim.baseline, "", {}, False, 0.0, claim.cost, note
        )


def _begin_seed(number: int) -> None:
    import torch

    from polopt.lab.fresh_seeds import shift_seeds

    torch.set_num_threads(1)
    shift_seeds(number)


def run_claims(names: Iterable[str], cost: Cost | None = None) -> Iterator[ClaimResult]:
    """Runs the claims of these methods, one by one.

    Raises:
        ValueError: as `planned_claims`.
    """
    return map(run_claim, planned_claims(names, cost))
