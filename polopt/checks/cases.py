"""Generators of test cases: each function yields calls of a row's part and the properties that must hold of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from polopt.checks.calls import PartCall
from polopt.checks.properties import (
    Fields,
    FiniteDifference,
    HasShape,
    HasType,
    ImprovesOutcome,
    IsFinite,
    IsZero,
    Key,
    NoGradient,
    PiecesAdd,
    SameResult,
)
from polopt.checks.sample_batches import SampleBatch, random_batch, with_columns, without_decisions
from polopt.checks.violation import Property, TestCase
from polopt.fields import PER_DECISION, SHAPES
from polopt.objectives import Objective
from polopt.part import Part

HIDDEN = {"other numbers": 7.0, "NaN": float("nan"), "1e30": 1e30, "-inf": -float("inf")}
EQUAL = (0.1, 0.7, 1000.1, -3.3)
NEAR_LOGP, FAR_LOGP = -2.0, -91.0
STEP = 1e-6
DECIDED = Fields()
FEW = 8  # up to this many numbers are perturbed one by one


@dataclasses.dataclass(frozen=True)
class PartRow:
    """A part to check.

    honest: a part whose value, differentiated, must give this part's gradient; None where there is none
        because the formula itself stops a gradient. "self" is the usual case.
    relative: the credit of a group of equal rewards is exactly 0.
    key: the key of the rows that a selection keeps, whatever the order of the rows.
    keeps: how a selection filters. "rows": some rows, and the same again when applied to its own output. "share":
        a fraction of the rows, so fewer when applied again. "decisions": all rows, and a fraction of their decisions.
        "repeats": some rows, and some of them several times.
    batch: makes the batch from a seed.
    """

    part: Part
    honest: Any = "self"
    relative: bool = False
    key: Key = DECIDED
    keeps: Literal["rows", "share", "decisions", "repeats"] = "rows"
    batch: Callable[..., SampleBatch] = random_batch


# Test cases for more than one kind of part --------------------------------------------------------------------


def permutation(row: PartRow, batch: SampleBatch) -> Iterator[TestCase]:
    first, B = PartCall(batch), len(batch.mask)
    for way, order in (("rows reversed", range(B - 1, -1, -1)), ("rows moved up by one", [*range(1, B), 0])):
        rows = torch.tensor(list(order), dtype=torch.long)
        calls = {"first": first, "second": PartCall(batch.rows(rows))}
        yield TestCase(way, calls, [SameResult("second", "first", rows=rows)])


def precision(row: PartRow, batch: SampleBatch, rtol: float = 1e-4, atol: float = 1e-5) -> Iterator[TestCase]:
    calls = {"double": PartCall(batch), "single": PartCall(batch.to(torch.float32))}
    yield TestCase("float32 against float64", calls, [SameResult("single", "double", rtol=rtol, atol=atol)])


def empty(row: PartRow, batch: SampleBatch) -> Iterator[TestCase]:
    laws: list[Property] = [IsFinite("nothing", metrics=True), IsZero("nothing")]
    yield TestCase("no decisions", {"nothing": PartCall(without_decisions(batch))}, laws)


def no_decisions(row: PartRow, batch: SampleBatch) -> Iterator[TestCase]:
    """Yields test cases without decisions: in one row among others, in a micro-batch, and in the whole batch."""
    B = len(batch.mask)
    silent = batch.replace(mask=batch.mask & (torch.arange(B) > 0)[:, None])
    yield TestCase("a row without decisions", {"silent": PartCall(silent)}, [IsFinite("silent")])
    twice = batch.rows(torch.arange(2 * B) % B)
    half_empty = twice.replace(mask=twice.mask & (torch.arange(2 * B) >= B)[:, None])
    micro = next(half_empty.experience.split(B))
    calls = {"whole": PartCall(half_empty), "nothing": PartCall(half_empty.rows(torch.arange(B)), micro, piece=(B, 0))}
    laws: list[Property] = [IsFinite("nothing"), IsZero("nothing")]
    yield TestCase("no decisions in a micro-batch", calls, laws)
    yield TestCase("no decisions in the whole batch", {"nothing": PartCall(without_decisions(batch))}, laws)


def hide(batch: SampleBatch, value: float, names: frozenset[str]) -> SampleBatch:
    """Returns the batch with `value` off the mask, in the fields, extras and leaves of these names."""

    def put(x: Tensor) -> Tensor:
        mask = batch.mask.reshape(*batch.mask.shape, *[1] * (x.ndim - 2))
        return torch.where(mask, x.detach(), value)

    old = batch.experience
    changes: dict[str, Any] = {n: put(getattr(old, n)) for n in names if n in SHAPES}
    changes["extras"] = {k: put(v) for k, v in old.extras.items() if f"extras.{k}" in names}
    leaves = {k: put(v).requires_grad_() if f"evaluation.{k}" in names else v for k, v in batch.leaves.items()}
    return dataclasses.replace(batch, experience=old.replace(**changes), leaves=leaves)


def hideable(row: PartRow, batch: SampleBatch) -> frozenset[str]:
    """Returns the names of all tensors that may hold any value off the mask.

    These are the fields that are meaningful only at decisions, all outputs of the policy (for an objective), and the
    extras that the row's own batches fill with NaN there.
    """
    e = batch.experience
    fields = {n for n in (*PER_DECISION, "reward") if (v := getattr(e, n)) is not None and v.ndim == 2}
    extras = {f"extras.{k}" for k, v in row.batch(0).experience.extras.items() if k in e.extras and _spoilt(v)}
    outputs = {f"evaluation.{k}" for k in batch.leaves} if isinstance(row.part, Objective) else set()
    return frozenset(fields | extras | outputs)


def _spoilt(x: Any) -> bool:
    return isinstance(x, Tensor) and x.ndim > 1 and x.is_floating_point() and not x.isfinite().all()


def poison(row: PartRow, batch: SampleBatch, laws: Callable[[SampleBatch], list[Property]]) -> Iterator[TestCase]:
    clean, names = PartCall(batch), hideable(row, batch)
    for value_name, value in HIDDEN.items():
        way = f"{value_name} off the mask"
        yield TestCase(way, {"clean": clean, "hidden": PartCall(hide(batch, value, names))}, laws(batch))
        for name in sorted(names, key=lambda n: not n.startswith("evaluation.")) if batch.mask.numel() <= FEW else ():
            calls = {"clean": clean, "hidden": PartCall(hide(batch, value, frozenset({name})))}
            changed = [law for law in laws(batch) if not isinstance(law, IsZero)]
            yield TestCase(f"{way}, in {described(name)}", calls, changed, part_of=way)


def described(name: str) -> str:
    """Returns the name of a field in words, which distinguishes the several log-probabilities."""
    words = {"rollout_logp": "the sampler's logp", "ref_logp": "the reference's logp"}
    return (
        f"the policy's {name.removeprefix('evaluation.')}" if name.startswith("evaluation.") else words.get(name, name)
    )


# Objectives ---------------------------------------------------------------------------------------------------


def split(row: PartRow, batch: SampleBatch) -> Iterator[TestCase]:
    whole, surveyed = PartCall(batch), batch.experience
    if row.part.required_full_batch_outputs:
        surveyed = surveyed.replace(full_batch_evaluation=batch.evaluation().detach())
    for size in (1, 4):
        calls, cuts = {"whole": whole}, surveyed.micro_batches(size, binds=row.part.binding)
        for index, rows in enumerate(cuts):
            calls[f"piece{index + 1}"] = PartCall(batch.rows(rows), surveyed.piece(rows), piece=(size, index))
        if len(calls) > 2 or size == 1:
            way = "in micro-batches of 1 row" if size == 1 else f"in micro-batches of {size} rows"
            way = way if row.part.binding != "group" else f"{way}, or of one larger group"
            names = [name for name in calls if name != "whole"]
            yield TestCase(way, calls, [PiecesAdd(names, "whole", torch.cat(list(cuts)).tolist())])


def occupied(batch: SampleBatch) -> SampleBatch:
    """Returns the rows that hold decisions."""
    return batch.rows(batch.mask.any(1).nonzero().flatten())


def split_occupied(row: PartRow, batch: SampleBatch) -> Iterator[TestCase]:
    yield from split(row, occupied(batch))


def objective_hidden(row: PartRow, batch: SampleBatch) -> Iterator[TestCase]:
    return poison(
        row, batch, lambda b: [IsFinite("hidden"), SameResult("hidden", "clean"), IsZero("hidden", where=~b.mask)]
    )


def single(row: PartRow, batch: SampleBatch) -> Iterator[TestCase]:
    for trial in precision(row, batch):
        # A gradient is coarser: rtol 9e-4, atol 9e-5.
        laws: list[Property] = [
            HasType("single", torch.float32),
            SameResult("single", "double", rtol=3e-5, atol=3e-6, slack=30),
        ]
        yield dataclasses.replace(trial, laws=laws)


def lines(batch: SampleBatch) -> dict[str, dict[str, Tensor]]:
    """Returns directions in which to perturb the policy's outputs: all ones, each number if there are few, and two
    random.
    """
    shapes = {k: v.shape for k, v in batch.leaves.items()}
    found = {"along ones": {k: torch.ones(s, dtype=torch.float64) for k, s in shapes.items()}}
    if sum(s.numel() for s in shapes.values()) <= FEW:
        for name, shape in shapes.items():
            for i in range(shape.numel()):
                unit = torch.zeros(shape.numel(), dtype=torch.float64)
                unit[i] = 1
                found[f"along {name} alone, number {i}"] = {name: unit.view(shape)}
    for seed in range(2):
        g = torch.Generator().manual_seed(seed)
        found[f"along line {seed}"] = {k: torch.randn(s, generator=g, dtype=torch.float64) for k, s in shapes.items()}
    return found


def slopes(row: PartRow, batch: SampleBatch) -> Iterator[TestCase]:
    """Yields central differences along lines, on a clean batch so that a line may have any direction."""
    if row.honest is None:
        return
    centre, honest = PartCall(batch), None if row.honest == "self" else row.honest
    for way, line in lines(batch).items():
        forward, backward = ({k: sign * STEP * v for k, v in line.items()} for sign in (1, -1))
        up, down = (PartCall(batch.nudged(step), part=honest) for step in (forward, backward))
        yield TestCase(
            way, {"here": centre, "up": up, "down": down}, [FiniteDifference("here", "up", "down", line, STEP)]
        )


def extremes(row: PartRow, batch: SampleBatch) -> Iterator[TestCase]:
    """Yields -2 against -91 in float32, both ways round, for each pair of log-probabilities; A of both signs."""
    batch = batch.to(torch.float32)
    for policy_logp, other_logp in ((NEAR_LOGP, FAR_LOGP), (FAR_LOGP, NEAR_LOGP)):
        policy, other = (torch.full(batch.mask.shape, x, dtype=torch.float32) for x in (policy_logp, other_logp))
        for changed in ("rollout_logp", "old_logp", "ref_logp"):
            names = {"rollout_logp": policy, "old_logp": policy, "ref_logp": policy, changed: other}
            leaves = {**batch.leaves, "logp": policy.clone().requires_grad_()}
            call = PartCall(dataclasses.replace(batch.replace(**names), leaves=leaves))
            way = f"{described(changed)} at {other_logp:g}, the policy's at {policy_logp:g}"
            yield TestCase(way, {"far": call}, [IsFinite("far")])


def on_policy(batch: SampleBatch) -> SampleBatch:
    """Returns the batch before the first update: behaviour policy, old policy and reference assign the current policy's
    log-probabilities.
    """
    e, logp = batch.experience, batch.leaves["logp"].detach()
    outputs = {k.removeprefix("extras."): v.detach() for k, v in batch.leaves.items() if k.startswith("extras.")}
    names = [(name, old) for name in outputs for old in (name, f"old_{name}") if old in e.extras]
    return batch.replace(
        rollout_logp=logp, old_logp=logp, ref_logp=logp, extras={old: outputs[name] for name, old in names}
    )


def idle(row: PartRow, batch: SampleBatch) -> Iterator[TestCase]:
    """Yields batches whose advantage is 0 everywhere, before the first update and after."""
    laws: list[Property] = [IsFinite("idle"), IsZero("idle", leaf="logp")]
    nothing = batch.replace(advantage=torch.zeros(batch.mask.shape, dtype=torch.float64))
    for way, idling in (("advantage 0, ratio 1", on_policy(nothing)), ("advantage 0", nothing)):
        yield TestCase(way, {"idle": PartCall(idling)}, laws)


def along(row: PartRow, batch: SampleBatch) -> Iterator[TestCase]:
    """Yields batches before the first update, to check that the loss moves the policy, and in which direction."""
    batch = on_policy(batch)
    mask, advantage = batch.mask, batch.experience.advantage
    law = ImprovesOutcome("first", torch.where(mask, advantage, 0), still=not (mask & (advantage != 0)).any())
    yield TestCase("ratio 1", {"first": PartCall(batch)}, [law])
    ones = torch.ones(mask.shape, dtype=torch.float64)
    law = ImprovesOutcome("first", mask.double(), still=True)
    yield TestCase("ratio 1, advantage 1 everywhere", {"first": PartCall(batch.replace(advantage=ones))}, [law])


# Credit -------------------------------------------------------------------------------------------------------


def regrouped(row: PartRow, batch: SampleBatch) -> Iterator[TestCase]:
    yield from permutation(row, batch)
    calls = {"first": PartCall(batch), "second": PartCall(batch.replace(group=1000 - 2 * batch.experience.group))}
    yield TestCase("other group numbers", calls, [SameResult("second", "first")])


def credit_hidden(row: PartRow, batch: SampleBatch) -> Iterator[TestCase]:
    def laws(batch: SampleBatch) -> list[Property]:
        return [
            HasShape("hidden", [batch.mask.shape]),
            IsZero("hidden", where=~batch.mask),
            SameResult("hidden", "clean"),
        ]

    yield from poison(row, batch, laws)


def still(row: PartRow, batch: SampleBatch) -> Iterator[TestCase]:
    fields = {name: getattr(batch.experience, name) for name in ("value", "reward")}
    grown = {k: v.clone().requires_grad_() for k, v in fields.items() if v is not None}
    yield TestCase(
        "of values and rewards with gradient", {"grown": PartCall(batch.replace(**grown))}, [NoGradient("grown")]
    )


def equal(row: PartRow, batch: SampleBatch) -> Iterator[TestCase]:
    """Yields equal rewards and groups of one in float32, with rewards whose sums round: finite, 0 if relative."""
    batch, B = batch.to(torch.float32), len(batch.mask)
    groups = {
        "in each group": batch.experience.group,
        "in groups of one": torch.arange(B),
        "in one group": torch.zeros(B, dtype=torch.long),
    }
    laws: list[Property] = [IsFinite("equal"), IsZero("equal")] if row.relative else [IsFinite("equal")]
    for reward in EQUAL:
        for where, group in groups.items():
            call = PartCall(batch.replace(reward=torch.full((B,), reward, dtype=torch.float32), group=group))
            yield TestCase(f"reward {reward} everywhere, {where}", {"equal": call}, laws, refusable=True)


# Rewards ------------------------------------------------------------------------------------------------------


def alone(row: PartRow, batch: SampleBatch) -> Iterator[TestCase]:
    """Yields cases of a reward that depends on its row alone; if the part reads the batch, not on the row order."""
    B = len(batch.mask)
    whole, shapes = PartCall(batch), [batch.mask.shape, batch.mask.shape[:1]]
    yield TestCase("", {"whole": whole}, [HasShape("whole", shapes), NoGradient("whole"), IsFinite("whole")])
    if any(getattr(part, "reads_batch", False) for part in row.part.parts()):
        yield from regrouped(row, batch)
        return
    for way, order in (("the first row alone", [0]), ("every other row, reversed", range(B - 1, -1, -2))):
        rows = torch.tensor(list(order), dtype=torch.long)
        yield TestCase(
            way, {"whole": whole, "some": PartCall(batch.rows(rows))}, [SameResult("some", "whole", rows=rows)]
        )


def reward_hidden(row: PartRow, batch: SampleBatch) -> Iterator[TestCase]:
    yield from poison(row, batch, lambda b: [IsFinite("hidden")])


def reward_nothing(row: PartRow, batch: SampleBatch) -> Iterator[TestCase]:
    yield TestCase("no decisions", {"nothing": PartCall(without_decisions(batch))}, [IsFinite("nothing")])


# Selection ----------------------------------------------------------------------------------------------------


def paddings(T: int) -> dict[str, tuple[list[int], int]]:
    """Returns, for each way of padding, the columns that T columns take in a wider batch, and that batch's width."""
    ways = {
        "padding on the right": (list(range(T)), 2 * T),
        "padding on the left": (list(range(1, T + 1)), T + 1),
    }
    if T > 1:
        ways["padding in between"] = ([*range(T - 1), T], T + 1)
    return ways


def padding(row: PartRow, batch: SampleBatch, zero_off_mask: bool = True) -> Iterator[TestCase]:
    narrow = PartCall(batch)
    for way, (places, T) in paddings(batch.mask.shape[1]).items():
        columns = torch.tensor(places)
        wide = with_columns(batch, columns, T)
        laws: list[Property] = [SameResult("wide", "narrow", columns=columns)]
        if zero_off_mask:
            laws.append(IsZero("wide", where=~wide.mask))
        yield TestCase(way, {"narrow": narrow, "wide": PartCall(wide)}, laws)
