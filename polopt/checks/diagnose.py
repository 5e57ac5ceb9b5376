"""Diagnoses of failed checks: named rules that explain a failure and that may be intended."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable

from polopt.checks import measure
from polopt.checks.calls import call_part
from polopt.checks.cases import PartRow
from polopt.checks.finding import CheckResult
from polopt.objectives import Regulariser


def _hidden(found: CheckResult, row: PartRow) -> CheckResult:
    """Notes that only NaN and infinity off the mask break the check, where other numbers do not."""
    if found.said.startswith("other numbers"):
        return found
    return dataclasses.replace(found, said=f"{found.said}; other numbers there do not matter", short="NaN, inf")


def _whole(found: CheckResult, row: PartRow) -> CheckResult:
    return dataclasses.replace(found, short="whole batch") if "in the whole batch" in found.said else found


def _sloped(found: CheckResult, row: PartRow) -> CheckResult:
    if not measure.stopped(row):
        return found
    sentence = "the gradient is the value's slope once what is detached is held still: a gradient is stopped on purpose"
    return dataclasses.replace(found, verdict="choice", said=sentence, short="stopped")


def _ordered(found: CheckResult, row: PartRow) -> CheckResult:
    if measure.repeats(row.part, row.batch):
        return found
    return dataclasses.replace(found, verdict="choice", said=f"{found.said}; it draws random numbers, row by row")


def _divided(found: CheckResult, row: PartRow) -> CheckResult:
    """Tests whether a plain loss whose micro-batches do not add up only divides by its own micro-batch's size."""
    if "raises" in found.said:
        return found
    named = measure.normaliser(row.part, row.batch)
    if named is None:
        sentence = (
            f"{found.said}; nothing that it could divide by explains it, so it compares rows within a micro-batch"
        )
        return dataclasses.replace(found, said=sentence)
    size, weights = named
    low, high = weights.values()
    sentence = f"it divides by the {size} of its own micro-batch"
    if high - low > measure.CLOSE:
        sentence += f": averaged over micro-batches of one row, a decision weighs {low:.2g} to {high:.2g} times its due"
    sentence = f"{sentence}; {measure.AVERAGED[size]}"
    return dataclasses.replace(found, verdict="choice", said=sentence, measured=weights, short=f"by its {size}")


def _idling(found: CheckResult, row: PartRow) -> CheckResult:
    """Accepts movement without advantages as a choice if a reference or, off policy, a penalty on the ratio explains
    it.
    """
    on_policy = found.said.startswith("advantage 0, ratio 1")
    has_reference = "ref_logp" in row.part.required_fields or any(isinstance(p, Regulariser) for p in row.part.parts())
    if "finite" in found.said or "nan" in found.said or (on_policy and not has_reference):
        return found
    by = "a regulariser" if has_reference else "off policy, a penalty on the ratio"
    return dataclasses.replace(found, verdict="choice", said=f"something else pulls: {by} ({found.said})")


def _thinned(found: CheckResult, row: PartRow) -> CheckResult:
    """Accepts a selection of a fraction, which applied again keeps a smaller fraction."""
    batch = row.batch(0, clean=True)
    once = call_part(copy.deepcopy(row.part), batch).kept
    assert once is not None, "a selection gives an Experience"
    twice = call_part(copy.deepcopy(row.part), dataclasses.replace(batch, experience=once, leaves={})).kept
    assert twice is not None, "a selection gives an Experience"
    if not 0 < len(twice) < len(once) or not set(twice.extras["row"].tolist()) <= set(once.extras["row"].tolist()):
        return found
    return dataclasses.replace(
        found, verdict="choice", said=f"it keeps a share of what there is, so fewer again: {found.said}"
    )


# By the check's name.
REFINED: dict[str, Callable[[CheckResult, PartRow], CheckResult]] = {
    "objective_permutation": _ordered,
    "loss_split": _divided,
    "loss_empty": _whole,
    "objective_poison": _hidden,
    "credit_poison": _hidden,
    "objective_gradient": _sloped,
    "objective_idle": _idling,
    "select_again": _thinned,
}
