"""Properties that every guard must satisfy, over all calls of a finite set."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence

from polopt.checks.state import Rule, repr_builds, yaml_returns
from polopt.guards import AllowedByAll, Guard, ToolCall


@dataclasses.dataclass(frozen=True)
class GuardRow:
    """A guard to check.

    calls: the complete set of calls.
    update: a guard to narrow it with.
    widens: its own updates may allow a call that was refused before.
    reference: whether a call is allowed after others, computed independently of the guard; for `GUARD` alone.
    """

    part: Guard
    calls: Sequence[ToolCall]
    update: Guard
    widens: bool = False
    reference: Callable[[ToolCall, Sequence[ToolCall]], bool] | None = None


def memories(row: GuardRow, length: int = 2) -> list[tuple[ToolCall, ...]]:
    """Returns every sequence of allowed calls of at most this length."""
    found: list[tuple[ToolCall, ...]] = [()]
    longest = found
    for _ in range(length):
        longest = [(*m, call) for m, call in itertools.product(longest, row.calls) if row.part(call, m).allow]
        found = [*found, *longest]
    return found


def brute_force(row: GuardRow) -> None:
    """Compares the verdict on every call, after every sequence of allowed calls, with the reference."""
    assert row.reference is not None, "there is no reference"
    for memory in memories(row):
        for call in row.calls:
            found, expected = row.part(call, memory).allow, row.reference(call, memory)
            assert found == expected, f"{call} after {list(memory)}: allowed is {found}, expected {expected}"


def narrowing(row: GuardRow) -> None:
    """Tests that an additional guard, or an additional call in the memory, allows no call that was refused."""
    both = AllowedByAll(guards=[row.part, row.update])
    for memory in memories(row, 1):
        for call in row.calls:
            if row.part(call, memory).allow:
                continue
            assert not both(call, memory).allow, f"{call} was refused, and is allowed by an update"
            for ran in row.calls if not row.widens else ():
                later = (*memory, ran)
                assert not (row.part(ran, memory).allow and row.part(call, later).allow), (
                    f"{call} is allowed after {ran}"
                )


def stateless(row: GuardRow) -> None:
    """Tests that earlier evaluations, of refused calls too, change no verdict."""
    first = [row.part(call) for call in row.calls]
    again = [row.part(call) for call in reversed(row.calls)][::-1]
    assert first == again, "a second question gets another verdict"


def refusals(row: GuardRow) -> None:
    """Tests that every refusal has a reason, and that an unknown tool is refused."""
    for call in (*row.calls, ToolCall("no such tool", {})):
        verdict = row.part(call)
        assert verdict.allow or verdict.reason, f"{call} is refused without a reason"
    assert not row.part(ToolCall("no such tool", {})).allow, "a tool that does not exist is allowed"


# Rules that compare verdicts on several calls.
OF_CALLS = (
    Rule("guard_narrowing", "narrowing", narrowing, "What an attacker can bring about must not open a door."),  # type: ignore[arg-type]
    Rule("guard_stateless", "no state", stateless, "A verdict must be the same when it is looked into later."),  # type: ignore[arg-type]
)
OF_THE_GUARD = (
    Rule("guard_refusals", "refusals", refusals, "An unforeseen call is refused; a model must read why."),  # type: ignore[arg-type]
    Rule("guard_yaml", "YAML", yaml_returns, "A recipe is kept as YAML; what comes back is what was run."),
    Rule("guard_repr", "print", repr_builds, "What is printed in a report is read as what was run."),
)
GUARD = (
    Rule("guard_brute_force", "brute force", brute_force, "A guard that is right most of the time is a hole."),  # type: ignore[arg-type]
    *OF_CALLS,
    *OF_THE_GUARD,
)
