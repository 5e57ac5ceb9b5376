"""Claims of papers as programs that measure them, and mutations, which a claim must notice."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any, Literal

ClaimKind = Literal["headline", "part", "identity", "theory", "limit", "ours"]
# Kind of claim -> what it shows, and does not show. Only the first is what a paper is published for.
CLAIM_KINDS: dict[ClaimKind, str] = {
    "headline": "the effect that the paper is published for",
    "part": "one step of the paper's argument, or an effect beside the headline",
    "identity": "an equation of the formula, restated as a measurement",
    "theory": "a theorem, or a tool of the paper; the method itself need not run",
    "limit": "where the paper's effect ends, or turns round",
    "ours": "a variant that the paper does not have",
}

Cost = Literal["fast", "slow"]


@dataclasses.dataclass(frozen=True)
class Finding:
    """The result of a claim's program.

    measured: named numbers. criterion: the condition of the claim, in words and numbers. holds: whether it is met.
    note: further results, above all why a claim fails.
    intervals: of those numbers that have one, its ends, at 95 %.
    won: of a claim that compares over seeds, the number of seeds on which the criterion is met, and of all seeds.
    step_sizes: of a claim that chooses them, the step size of each side.
    """

    measured: dict[str, float]
    criterion: str
    holds: bool
    note: str = ""
    intervals: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    won: tuple[int, int] | None = None
    step_sizes: dict[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Claim:
    """A statement and the program that measures it. cost "fast" is a few seconds at most, "slow" is more.

    kind: what the statement is to its paper, see `CLAIM_KINDS`.
    baseline: what the method is measured against, or where the statement must fail.
    refuted: an honest test contradicts the claim, which stays, shown as failing; its finding's note has the reason.
    controls: the sides that `lab.effects` measures beside the method, each at its own best step size; none for a
        program that makes its own comparison.
    """

    name: str
    statement: str
    kind: ClaimKind
    baseline: str
    run: Callable[[], Finding]
    cost: Cost = "fast"
    refuted: bool = False
    controls: tuple[str, ...] = ()

    def check(self) -> tuple[Finding, float]:
        """Runs the claim, and returns the finding and its seconds."""
        start = time.perf_counter()
        finding = self.run()
        return finding, time.perf_counter() - start


def claim(
    statement: str,
    *,
    kind: ClaimKind,
    baseline: str = "",
    cost: Cost = "fast",
    refuted: bool = False,
) -> Callable[[Callable[[], Finding]], Claim]:
    """Returns a decorator that makes a claim from the program that measures it. Its name is the function's, its paper
    the file's.
    """

    def make(run: Callable[[], Finding]) -> Claim:
        return Claim(run.__name__, statement, kind, baseline, run, cost, refuted)

    return make


# replace(owner, name, value) sets an attribute of a class, module or method, which must have it.
Replace = Callable[[Any, str, Any], None]


@dataclasses.dataclass(frozen=True)
class Mutation:
    """A bug that is planted in a method's own part, and the claim that must notice it: that must not hold any more.

    plant: replaces what the bug changes, by the function that it is given.
    """

    name: str
    statement: str
    kills: Claim
    plant: Callable[[Replace], None]


def mutation(statement: str, *, kills: Claim) -> Callable[[Callable[[Replace], None]], Mutation]:
    """Returns a decorator that makes a mutation from the function that plants it. Its name is the function's, its
    method the file's.

    Raises:
        ValueError: the claim does not hold without a bug.
    """
    if kills.refuted:
        raise ValueError(f"mutation: the claim {kills.name!r} fails without a bug; name one that holds")

    def make(plant: Callable[[Replace], None]) -> Mutation:
        return Mutation(plant.__name__, statement, kills, plant)

    return make


def replace_for_good(owner: Any, name: str, value: Any) -> None:
    """Replaces an attribute, also of a frozen object, until the process ends.

    Raises:
        AttributeError: there is no such attribute, so that the replacement would change nothing.
    """
    getattr(owner, name)
    try:
        setattr(owner, name, value)
    except dataclasses.FrozenInstanceError:
        object.__setattr__(owner, name, value)
