"""Everything that is checked of a part, a plain loss or an algorithm, as one report."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from polopt.algorithm import Algorithm
from polopt.checks import measure
from polopt.checks.batches import Batch, random_batch
from polopt.checks.battery import ALONG, IDLE, Check
from polopt.checks.example import made_from, script
from polopt.checks.finding import Finding
from polopt.checks.lab import Measured, measured
from polopt.checks.laws import Fields
from polopt.checks.plain import PlainLoss, as_loss, name_of_function
from polopt.checks.stand import Place, places
from polopt.checks.state import Rule
from polopt.checks.trials import Row
from polopt.credit import Credit
from polopt.experience import SHAPES
from polopt.objectives import Objective, Regulariser
from polopt.part import Part


@dataclasses.dataclass(frozen=True)
class Report:
    """name: the subject, as it was named. kind: what kind of part it is. lab: bias and variance, or why there are
    none."""

    name: str
    kind: str
    findings: list[Finding]
    lab: list[Measured] | str

    @property
    def breaks(self) -> list[Finding]:
        return [f for f in self.findings if f.verdict == "breaks"]


def check(
    subject: Part | Callable[..., Any],
    name: str | None = None,
    *,
    lab: bool = True,
    made_by: list[str] | None = None,
    batch: Callable[..., Batch] = random_batch,
) -> list[Report]:
    """What holds of a part or of a plain function `loss(logp, old_logp, advantage, mask, ...)`, and what breaks.

    An algorithm gives one report for each of its parts, the objective first. name: what to call it. lab: measure bias
    and variance, too. made_by: lines of code that make the subject, for the examples: the part under the name `part`,
    a function under the name `loss`. batch: makes a batch from a seed; `clean=True` must hide nothing off the mask.

    Raises:
        ValueError: a function with arguments that a check cannot give, a kind of part without a battery, a part that
            needs a field that the batch has not.
        ExperienceError: a function that returns no scalar.
    """
    tried = batch(0, clean=True)
    part = subject if isinstance(subject, Part) else as_loss(subject, tried.experience, tried.evaluation())
    reports: list[Report] = []
    for place in places(part):
        _refuse(place.whole, batch)
        called = name or (repr(part) if part is subject else name_of_function(subject))
        called = f"{called}: {place.whole!r}" if isinstance(part, Algorithm) else called
        lines = made_by if made_by is not None and place.whole is part else made_from(place.whole)
        told = measured(place.sentence, place.word not in ("credit", "reward")) if lab and not reports else ""
        reports.append(Report(called, place.word, findings(place, lines, batch), told))
    return reports


def _refuse(part: Part, batch: Callable[..., Batch]) -> None:
    """Raises ValueError for a part that reads what the batch has not."""
    made = batch(0)
    e = made.experience
    filled = {n for n in SHAPES if getattr(e, n) is not None} | {f"extras.{k}" for k in e.extras}
    for missing in sorted(part.all_needs - filled):
        raise ValueError(
            f"{part!r} needs {missing}, which the batches of the check do not have; give a function that makes one "
            "from a seed, with --batch file.py:function"
        )
    for missing in sorted(part.all_evaluates - set(made.leaves)):
        raise ValueError(f"{part!r} needs {missing} of what the policy says, which the batches of the check have not")


def findings(place: Place, made_by: list[str], batch: Callable[..., Batch]) -> list[Finding]:
    """What was found of one part in its place."""
    row, drawn = _row(place.whole, batch), None
    if isinstance(place.whole, PlainLoss):
        drawn = None if measure.repeats(place.whole) else DRAWN
        made_by = [*made_by, *(FIRST if place.whole.first else []), *(SEEDED if drawn else [])]
    found = [_finding(check, row, made_by) for check in place.battery]
    if isinstance(place.whole, Objective) and "advantage" in place.whole.all_needs:
        found += [_finding(IDLE, row, made_by), *_along(row, made_by)]
    return [*found, *([drawn] if drawn else [])]


DRAWN = Finding(
    "random numbers",
    "choice",
    "two calls on one batch differ; all else was checked with one seed for every call",
    "A loss that draws numbers of its own adds noise to the gradient, and needs a saved generator to resume.",
)
FIRST = ["several = loss", "loss = lambda **given: several(**given)[0]"]
SEEDED = ["drawn = loss", "loss = lambda **given: (torch.manual_seed(0), drawn(**given))[1]"]


def _row(part: Part, batch: Callable[..., Batch]) -> Row:
    """What a checked row would have to say of itself, found out."""
    fields = {n: batch(0).experience for n in sorted(part.all_needs)}
    of_rows = [n for n, e in fields.items() if n.startswith("extras.") or "BT" not in SHAPES[n]]
    key = Fields(tuple(of_rows)) if of_rows and len(of_rows) == len(fields) else Fields()
    return Row(part, relative=isinstance(part, Credit) and _relative(part, batch), key=key, batch=batch)


def _relative(part: Credit, batch: Callable[..., Batch]) -> bool:
    """Whether groups that agree get no credit at all, where no sum rounds: so then they must everywhere."""
    e = batch(0, clean=True).experience
    try:
        return all(not part.but()(e.replace(reward=e.outcome * 0 + r)).count_nonzero() for r in (1.0, 2.0))
    except Exception:
        return False  # the checks say what it raises


def _finding(check: Check | Rule, row: Row, made_by: list[str]) -> Finding:
    failure = check.failure(row)
    if failure is None:
        return Finding(check.title, "holds", why=check.why)
    found = Finding(check.title, "breaks", failure.sentence, check.why, example=script(row.part, failure, made_by))
    refine = REFINED.get(check.name)
    return found if refine is None else refine(found, row)


def _hidden(found: Finding, row: Row) -> Finding:
    """NaN and infinity are one thing, numbers another."""
    if found.said.startswith("other numbers"):
        return found
    return dataclasses.replace(found, said=f"{found.said}; other numbers there do not matter")


def _sloped(found: Finding, row: Row) -> Finding:
    if not measure.stopped(row):
        return found
    said = "the gradient is the value's slope once what is detached is held still: a gradient is stopped on purpose"
    return dataclasses.replace(found, verdict="choice", said=said)


def _ordered(found: Finding, row: Row) -> Finding:
    if measure.repeats(row.part):
        return found
    return dataclasses.replace(found, verdict="choice", said=f"{found.said}; it draws random numbers, row by row")


def _divided(found: Finding, row: Row) -> Finding:
    """A plain loss whose micro-batches do not add up: does it only divide by its own size?"""
    if "raises" in found.said:
        return found
    named = measure.normaliser(row.part)
    if named is None:
        said = f"{found.said}; nothing that it could divide by explains it, so it compares rows within a micro-batch"
        return dataclasses.replace(found, said=said)
    size, weights = named
    low, high = weights.values()
    said = f"it divides by the {size} of its own micro-batch"
    if high - low > measure.CLOSE:
        said += f": averaged over micro-batches of one row, a decision weighs {low:.2g} to {high:.2g} times its due"
    return dataclasses.replace(found, verdict="choice", said=f"{said}; {measure.AVERAGED[size]}", measured=weights)


def _idling(found: Finding, row: Row) -> Finding:
    """A distance to a reference moves without advantages, and so does a penalty on the ratio; nothing else may."""
    on_policy = found.said.startswith("advantage 0, ratio 1")
    referred = "ref_logp" in row.part.all_needs or any(isinstance(p, Regulariser) for p in row.part.parts())
    if "finite" in found.said or "nan" in found.said or (on_policy and not referred):
        return found
    by = "a regulariser" if referred else "off policy, a penalty on the ratio"
    return dataclasses.replace(found, verdict="choice", said=f"something else pulls: {by} ({found.said})")


def _along(row: Row, made_by: list[str]) -> list[Finding]:
    """Which way it moves the policy; if that is the right one, also how far, and how lengths enter."""
    found = _finding(ALONG, row, made_by)
    if found.verdict == "breaks":
        return [found]
    return [measure.direction(row.part, found.title, found.why), measure.lengths(row.part)]


# What a check that goes wrong may turn out to be, by the check's name.
REFINED: dict[str, Callable[[Finding, Row], Finding]] = {
    "objective_permutation": _ordered,
    "loss_split": _divided,
    "objective_poison": _hidden,
    "credit_poison": _hidden,
    "objective_gradient": _sloped,
    "objective_idle": _idling,
}
