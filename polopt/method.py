"""Published methods, with their builders and papers, and claims, which can be run."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, get_args

from polopt.names import nearest

if TYPE_CHECKING:  # a method can be described without torch
    from polopt.part import Part

P = ParamSpec("P")
Built = TypeVar("Built", bound="Part", covariant=True)

Room = Literal["sampling", "rewards", "credit", "objectives", "updates", "metrics", "guards", "solvers"]
ROOMS: tuple[Room, ...] = get_args(Room)

Tier = Literal["proven", "faithful", "reading"]
TIERS: dict[Tier, str] = {
    "proven": "the formula was confirmed at the source, and a headline effect of the paper holds on fresh seeds",
    "faithful": "the formula was confirmed at the source, and the claims run",
    "reading": "the paper leaves the formula open; ours is a stated reading, whatever effects it has",
}

Kind = Literal["algorithm", "metric", "solver", "guard"]
# Kind of method -> how it is run; SLUG is its name.
KINDS: dict[Kind, str] = {
    "algorithm": "polopt train --method SLUG",
    "metric": "polopt measure SLUG FILE",
    "solver": "polopt solve SLUG PROBLEM",
    "guard": "a recipe's tasks: {kind: guarded, of: WORLD, rules: FILE}",
}


def usage_of(kind: str | None, name: str) -> str:
    """Returns how a method of a kind is run, as part of a sentence."""
    return f"run it as {KINDS[kind].replace('SLUG', name)}"  # type: ignore[index]


def with_article(kind: str | None) -> str:
    """Returns a kind with its article: an algorithm, a solver."""
    return f"{'an' if kind == 'algorithm' else 'a'} {kind}"


@dataclasses.dataclass(frozen=True)
class Paper:
    """The publication of a method. arxiv is the identifier alone, as in "2402.03300"."""

    title: str
    authors: str
    year: int
    arxiv: str | None = None
    venue: str | None = None

    def bibtex(self, key: str) -> str:
        """Returns a BibTeX entry under `key`."""
        where = (
            f"  eprint = {{{self.arxiv}}},\n  archivePrefix = {{arXiv}},\n"
            if self.arxiv
            else f"  howpublished = {{{self.venue}}},\n"
        )
        return (
            f"@misc{{{key},\n  title = {{{self.title}}},\n  author = {{{self.authors}}},\n"
            f"{where}  year = {{{self.year}}},\n}}"
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Method(Generic[P, Built]):
    """A published method: calling it with its paper's settings builds its part, for most an `Algorithm`.

    room: the kind of part that the paper changes; of several, the one of its main idea.
    """

    slug: str
    build: Callable[P, Built]
    paper: Paper
    changes: str
    room: Room
    tier: Tier

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Built:
        known = self.settings()
        from polopt.setting_types import checked_setting, setting_types

        checks = setting_types(self.build, tuple(known))
        given: dict[str, Any] = {}
        for key, value in kwargs.items():
            if key not in known:
                raise TypeError(f"method {self.slug!r} has no setting {key!r:.100}{nearest(key, known)}")
            given[key] = checked_setting(checks[key], value, f"method {self.slug!r}", key)
        return self.build(*args, **given)  # type: ignore[arg-type]

    @property
    def kind(self) -> Kind:
        """Returns the kind of method, from the return type of its builder.

        Raises:
            TypeError: the return type is missing, or a part that is no kind of method.
        """
        built = typing.get_type_hints(self.build).get("return")
        kind = getattr(built, "method_kind", None)
        if kind not in KINDS:
            raise TypeError(
                f"the builder of method {self.slug!r} must be declared to return a part with a method_kind of "
                f"{', '.join(KINDS)}, found {built!r:.100}"
            )
        return kind

    def settings(self) -> dict[str, Any]:
        """Returns the builder's settings with the paper's defaults."""
        return {p.name: p.default for p in inspect.signature(self.build).parameters.values()}

    @property
    def doc(self) -> str:
        """Returns the builder's docstring: the formula, and deviations from the paper."""
        module = inspect.getmodule(self.build)
        return inspect.cleandoc(self.build.__doc__ or (module and module.__doc__) or "")


def method(*, paper: Paper, changes: str, room: Room, tier: Tier) -> Callable[[Callable[P, Built]], Method[P, Built]]:
    """Returns a decorator that makes a method from its builder. The slug is the file's name, with '-' for '_'.

    Raises:
        ValueError: there is no such room.
    """
    if room not in ROOMS:
        raise ValueError(f"room = {room!r:.60} is none of {', '.join(ROOMS)}")

    def make(build: Callable[P, Built]) -> Method[P, Built]:
        slug = build.__module__.rpartition(".")[2].replace("_", "-")
        return Method(slug=slug, build=build, paper=paper, changes=changes, room=room, tier=tier)

    return make
