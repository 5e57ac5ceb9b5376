"""Generators of test cases for selections."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch

from polopt.checks.calls import PartCall
from polopt.checks.cases import DECIDED, PartRow, padding, paddings, permutation, poison
from polopt.checks.properties import (
    HasShape,
    SameResult,
)
from polopt.checks.sample_batches import SampleBatch, without_decisions
from polopt.checks.selection_properties import KeepsDecisions, KeepsFewer, KeepsOrder, KeepsRows
from polopt.checks.violation import Property, TestCase


def chosen(row: PartRow, batch: SampleBatch) -> Iterator[TestCase]:
    for trial in permutation(row, batch):
        yield dataclasses.replace(trial, laws=[KeepsRows("second", "first", row.key)])


def chosen_padding(row: PartRow, batch: SampleBatch) -> Iterator[TestCase]:
    ways = paddings(batch.mask.shape[1])
    for trial in padding(row, batch):
        columns = torch.tensor(ways[trial.way][0])
        yield dataclasses.replace(trial, laws=[SameResult("wide", "narrow"), KeepsDecisions("wide", "narrow", columns)])


def chosen_hidden(row: PartRow, batch: SampleBatch) -> Iterator[TestCase]:
    yield from poison(row, batch, lambda b: [KeepsRows("hidden", "clean", DECIDED)])


def chosen_of_nothing(row: PartRow, batch: SampleBatch) -> Iterator[TestCase]:
    yield TestCase("no decisions", {"nothing": PartCall(without_decisions(batch))}, [KeepsDecisions("nothing")])


def whole_rows(row: PartRow, batch: SampleBatch) -> Iterator[TestCase]:
    """Yields test cases of a selection: rows stay whole and in order, no decision is added; no rows give no rows."""
    yield TestCase("", {"once": PartCall(batch)}, [KeepsOrder("once", batch.experience, row.keeps)])
    none = PartCall(batch.rows(torch.arange(0)))
    yield TestCase("no rows", {"none": none}, [HasShape("none", [torch.Size([0])])])


def chosen_again(row: PartRow, batch: SampleBatch) -> Iterator[TestCase]:
    """Yields a selection applied twice: the second time changes nothing, or, for a fraction, keeps no more."""
    if row.keeps == "repeats":
        return
    once = PartCall(batch)
    yield TestCase("", {"once": once}, [])
    kept = once.on(row.part).kept
    assert kept is not None, "a selection gives an Experience"
    twice = PartCall(dataclasses.replace(batch, experience=kept, leaves={}))
    law: Property = (
        KeepsRows("twice", "once", DECIDED) if row.keeps == "rows" else KeepsFewer("twice", "once", batch.experience)
    )
    yield TestCase("choosing again", {"once": once, "twice": twice}, [law])
