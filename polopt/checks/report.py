"""Reports of all checks of a part, a plain loss or an algorithm."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import torch

from polopt.algorithm import Algorithm
from polopt.checks import measure
from polopt.checks.battery import ALONG, IDLE, Check
from polopt.checks.calls import call_part
from polopt.checks.cases import PartRow
from polopt.checks.diagnose import REFINED
from polopt.checks.example import made_from, script
from polopt.checks.finding import CheckResult
from polopt.checks.guard_checks import guard_findings
from polopt.checks.lab import GradientComparison, measured
from polopt.checks.measure import Maker
from polopt.checks.metric_checks import metric_findings
from polopt.checks.placement import PartKind, places
from polopt.checks.plain_loss import PlainLoss, as_loss, name_of_function
from polopt.checks.properties import Fields
from polopt.checks.sample_batches import MAKERS, random_batch
from polopt.checks.solver_checks import solver_findings
from polopt.checks.state import Rule
from polopt.credit import Credit
from polopt.fields import SHAPES, ExperienceError
from polopt.guards import Guard
from polopt.metrics import Metric
from polopt.objectives import Objective
from polopt.part import Part
from polopt.sampling import Select
from polopt.solvers import Solver


@dataclasses.dataclass(frozen=True)
class Report:
    """A report on one part.

    name: the subject, as it was named.
    kind: the kind of part.
    lab: bias and variance, or why there are none.
    refused: why nothing could be checked.
    """

    name: str
    kind: str
    findings: list[CheckResult]
    lab: list[GradientComparison] | str
    refused: str = ""

    @property
    def breaks(self) -> list[CheckResult]:
        return [f for f in self.findings if f.verdict == "breaks"]


def check(
    subject: Part | Callable[..., Any],
    name: str | None = None,
    *,
    lab: bool = True,
    made_by: list[str] | None = None,
    batch: Maker | None = None,
) -> list[Report]:
    """Checks a part or a plain function `loss(logp, old_logp, advantage, mask, ...)`, and reports what holds and what
    breaks.

    An algorithm gives one report for each of its parts, the objective first; a solver is checked on random games, a
    metric on logs of a small problem, a guard on calls at the bounds of its conditions.

    name: the subject's name in the report.
    lab: also measure bias and variance.
    made_by: lines of code that make the subject, for the examples: the part under the name `part`, a function under the
        name `loss`.
    batch: makes a batch from a seed; `clean=True` must leave no NaN and no extreme value off the mask. None takes the
        first of `sample_batches.MAKERS` that suits the part.

    Raises:
        ValueError: a function with arguments that a check cannot give or that returns no scalar, a kind of part without
            a battery, a part that reads fields which the batches lack.
    """
    if isinstance(subject, Solver):
        return [Report(name or repr(subject), "solver", solver_findings(subject), "")]
    if isinstance(subject, Metric):
        return [Report(name or repr(subject), "metric", metric_findings(subject), "")]
    if isinstance(subject, Guard):
        return [Report(name or repr(subject), "guard", guard_findings(subject), "")]
    if isinstance(subject, Part):
        part, called = subject, name or repr(subject)
    else:
        tried = (batch or random_batch)(0, clean=True)
        part = as_loss(subject, tried.experience, tried.evaluation())
        called = name or name_of_function(subject)
    reports: list[Report] = []
    for place in places(part):
        whole = isinstance(part, Algorithm)
        bias_variance = measured(place.sentence, place.word not in ("credit", "reward")) if lab and not reports else ""
        titled = f"{called}: {place.whole!r}" if whole else called
        try:
            make = suitable(place.whole, batch)
        except ValueError as error:
            if not whole:
                raise
            reports.append(Report(titled, place.word, [], bias_variance, str(error)))
            continue
        lines = made_by if made_by is not None and place.whole is part else made_from(place.whole)
        reports.append(Report(titled, place.word, findings(place, lines, make), bias_variance))
    return reports


def suitable(part: Part, batch: Maker | None) -> Maker:
    """Returns the first batch maker whose batches the part can read.

    Raises:
        ValueError: there is none.
    """
    refusals = []
    for make in MAKERS if batch is None else (batch,):
        refusals.append(refusal(part, make))
        if not refusals[-1]:
            return make
    raise ValueError(refusals[0])


def refusal(part: Part, make: Maker) -> str:
    """Returns why a part cannot be checked on these batches; empty if it can."""
    first, e = make(0), make(0).experience
    filled = {n for n in SHAPES if getattr(e, n) is not None} | {f"extras.{k}" for k in e.extras}
    missing = sorted(part.required_fields - filled)
    if missing:
        return (
            f"{part!r} needs {missing[0]}, which the batches of the check do not have; give a function that makes one "
            "from a seed, with --batch file.py:function"
        )
    absent = sorted(part.required_outputs - set(first.leaves))
    if absent:
        return f"{part!r} needs {absent[0]} of the policy's outputs, which the batches of the check do not have"
    try:
        for seed in (0, 1):
            call_part(copy.deepcopy(part), make(seed, clean=True))
    except ExperienceError as error:
        return f"{part!r} refuses the batches of the check: {error}"
    except Exception:
        return ""  # the checks report what it raises
    return ""


def findings(place: PartKind, made_by: list[str], make: Maker) -> list[CheckResult]:
    """Runs the battery of one part in its place."""
    if isinstance(place.whole, PlainLoss) and not measure.finite(place.whole, make):
        # Rows without decisions have a check of their own, and must not mask other failures.
        make = measure.decided(make)
    row, random_numbers = _row(place.whole, make), None
    if isinstance(place.whole, PlainLoss):
        random_numbers = None if measure.repeats(place.whole, make) else RANDOM_NUMBERS
        made_by = [*made_by, *(FIRST if place.whole.first else []), *(SEEDED if random_numbers else [])]
    found = [_finding(check, row, made_by) for check in place.battery]
    if isinstance(place.whole, Objective) and "advantage" in place.whole.required_fields:
        found += _moving(row, made_by)
    return [*found, *([random_numbers] if random_numbers else [])]


RANDOM_NUMBERS = CheckResult(
    "random numbers",
    "choice",
    "two calls on one batch differ; all else was checked with one seed for every call",
    "A loss that draws numbers of its own adds noise to the gradient, and needs a saved generator to resume.",
)
FIRST = ["several = loss", "loss = lambda **given: several(**given)[0]"]
SEEDED = ["drawn = loss", "loss = lambda **given: (torch.manual_seed(0), drawn(**given))[1]"]


def _row(part: Part, make: Maker) -> PartRow:
    """Infers the properties of a part that a `PartRow` declares."""
    needs = sorted(part.required_fields)
    of_rows = all(n.startswith("extras.") or "BT" not in SHAPES[n] for n in needs)
    key = Fields(tuple(needs)) if needs and of_rows else Fields()
    relative = isinstance(part, Credit) and _relative(part, make)
    return PartRow(part, relative=relative, key=key, keeps=_keeps(part, make), batch=make)


def _keeps(part: Part, make: Maker) -> Literal["rows", "decisions", "repeats"]:
    """Infers how a selection filters: see `PartRow`."""
    if not isinstance(part, Select):
        return "rows"
    batch = make(0, clean=True)
    try:
        kept = call_part(copy.deepcopy(part), batch).kept
    except Exception:
        return "rows"  # the checks report what it raises
    assert kept is not None, "a selection gives an Experience"
    rows = kept.extras["row"]
    if len(rows.unique()) < len(rows):
        return "repeats"
    return "decisions" if len(rows) == len(batch.mask) and not torch.equal(kept.mask, batch.mask) else "rows"


def _relative(part: Credit, make: Maker) -> bool:
    """Tests whether groups of equal rewards get zero credit for rewards whose sums do not round; then all must."""
    e = make(0, clean=True).experience
    try:
        return all(not part.but()(e.replace(reward=e.outcome * 0 + r)).count_nonzero() for r in (1.0, 2.0))
    except Exception:
        return False  # the checks report what it raises


def _finding(check: Check | Rule, row: PartRow, made_by: list[str]) -> CheckResult:
    failure = check.failure(row)
    if failure is None:
        return CheckResult(check.title, "holds", why=check.why)
    found = CheckResult(check.title, "breaks", failure.sentence, check.why, example=script(row.part, failure, made_by))
    refine = REFINED.get(check.name)
    return found if refine is None else refine(found, row)


def _moving(row: PartRow, made_by: list[str]) -> list[CheckResult]:
    """Checks the direction in which a loss moves the policy; if it is right, measures its cosine and the effect of
    length.
    """
    if not measure.reads_advantage(row.part, row.batch):
        return [
            CheckResult(
                ALONG.title, "choice", "it does not read the advantage: it learns from something else", ALONG.why
            )
        ]
    idle, along = (_finding(check, row, made_by) for check in (IDLE, ALONG))
    if along.verdict == "breaks":
        return [idle, along]
    return [idle, measure.direction(row.part, row.batch, along.title, along.why), measure.lengths(row.part, row.batch)]
