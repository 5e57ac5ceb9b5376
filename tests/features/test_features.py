"""Features say truly what their values describe, and whether a value depends on other rows."""

from __future__ import annotations

import importlib
import inspect

import pytest
import torch
from battery import random_batch

import polopt as po
from polopt import features
from polopt.features import (
    AnswerEntropy,
    AnswerMatches,
    Confidence,
    DecisionCount,
    Feature,
    FieldMask,
    Finished,
    Grouping,
    HasTeacher,
    IsCorrect,
    IsDemonstration,
    Logistic,
    LongerThan,
    Mask,
    MeanEntropy,
    RowFeature,
    RowField,
    RowMask,
    SameKind,
    SameMeaning,
    SamePrompt,
    SameTask,
    SignalAbove,
    SolvedGroups,
    Strata,
    SuccessRate,
    TaskKindIs,
    TokenFeature,
    TokenMask,
    TopGroups,
    TurnCount,
    WellFormed,
    WholeBatch,
)
from polopt.worlds import Task

FEATURES = [
    *(AnswerEntropy(), Confidence(share=0.4), DecisionCount(), MeanEntropy(), RowField(name="calls"), TurnCount()),
    *(SuccessRate(), SuccessRate(within=SamePrompt(), invert=True), Logistic(of=DecisionCount(), centre=2.0)),
    Logistic(of=SuccessRate(within=SamePrompt())),
    *(AnswerMatches(pattern="b"), IsCorrect(threshold=0.5), IsDemonstration(), LongerThan(than=2), HasTeacher()),
    *(SignalAbove(name="x"), SolvedGroups(right=IsCorrect(threshold=0.5)), TaskKindIs(kinds=("sum",)), TopGroups()),
    *(WellFormed(), WellFormed(invert=True)),
    *(FieldMask(name="flag"), FieldMask(name="window", unit="token"), Finished(), HasTeacher(below=0.4, invert=True)),
    *(SameKind(), SameMeaning(), SamePrompt(), SameTask(), WholeBatch(), Strata(by=DecisionCount())),
]


def batch() -> po.Experience:
    """A random batch with every field that a feature reads."""
    e = random_batch().experience
    rows, number = len(e), torch.Generator().manual_seed(0)
    index = ops_index(e)
    return e.replace(
        extras={
            **e.extras,
            "answer": [("a", "b", "ab")[i % 3] for i in range(rows)],
            "calls": torch.rand(rows, generator=number),
            "signal_malformed": torch.randint(2, (rows,), generator=number).double(),
            "window": torch.rand(e.mask.shape, generator=number) > 0.5,
            "flag": torch.rand(rows, generator=number) > 0.5,
            "has_teacher_signal": torch.rand(rows, generator=number) > 0.5,
            "index": index,
            "kind": [("sum", "product")[int(i) % 2] for i in index],
            "signal_x": torch.rand(rows, generator=number),
            "task": [Task(f"{i}", "sum", "p", None, {"meaning": int(i) // 2}) for i in index],
        }
    )


def ops_index(e: po.Experience) -> torch.Tensor:
    return po.ops.group_index(e.group)[0]


@pytest.mark.parametrize("feature", FEATURES, ids=repr)
def test_values_are_of_the_declared_unit(feature: Feature) -> None:
    e = batch()
    values = feature(e)
    assert values.shape == (e.mask.shape if feature.unit in ("token", "turn") else e.mask.shape[:1])
    assert not values.requires_grad
    if isinstance(feature, Grouping):
        assert not values.is_floating_point()
    if isinstance(feature, Mask):
        assert values.dtype == torch.bool


@pytest.mark.parametrize("feature", [f for f in FEATURES if not f.reads_batch], ids=repr)
def test_a_value_depends_on_its_own_row_alone(feature: Feature) -> None:
    e = batch()
    values = feature(e)
    for row in range(len(e)):
        torch.testing.assert_close(feature(e[[row]]), values[[row]], rtol=0, atol=0)


@pytest.mark.parametrize("feature", [f for f in FEATURES if f.reads_batch and f.unit == "row"], ids=repr)
def test_what_reads_the_batch_declares_it(feature: Feature) -> None:
    e = batch()
    alone = torch.cat([feature(e[[row]]) for row in range(len(e))])
    assert not torch.equal(alone, feature(e))


@pytest.mark.parametrize("feature", [f for f in FEATURES if isinstance(f, Grouping)], ids=repr)
def test_groups_do_not_depend_on_the_order_of_the_rows(feature: Grouping) -> None:
    e = batch()
    order = torch.randperm(len(e), generator=torch.Generator().manual_seed(1))
    together, moved = feature(e), feature(e[order])
    assert torch.equal(moved[:, None] == moved, (together[:, None] == together)[order][:, order])
    if feature.parts_prompts:
        assert bool((e.group[:, None] == e.group)[together[:, None] == together].all())


def test_every_feature_of_the_room_is_tested() -> None:
    found = {cls for name in features.__all__ if inspect.isclass(cls := getattr(features, name))}
    kinds = {Feature, RowFeature, TokenFeature, Mask, RowMask, TokenMask, Grouping}
    assert found - kinds == {type(feature) for feature in FEATURES}
    assert all(importlib.import_module(cls.__module__).__name__.startswith("polopt.features.") for cls in found)


class OneTooMany(RowFeature):
    def forward(self, experience: po.Experience) -> torch.Tensor:
        return torch.zeros(len(experience) + 1)


class OfTokens(RowMask):
    def forward(self, experience: po.Experience) -> torch.Tensor:
        return experience.mask


class OfNumbers(RowMask):
    def forward(self, experience: po.Experience) -> torch.Tensor:
        return experience.lengths


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (OneTooMany(), r"OneTooMany must return \[{rows}\], found torch.float32 \[{more}\]"),
        (OfTokens(), r"OfTokens must return \[{rows}\], found torch.bool \[{rows}, {length}\]"),
        (OfNumbers(), r"OfNumbers must return bool, found torch.int64 \[{rows}\]"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_wrong_shape_or_type_is_refused(wrong: Feature, said: str) -> None:
    e = batch()
    rows, length = e.mask.shape
    text = said.replace("{rows}", str(rows)).replace("{more}", str(rows + 1)).replace("{length}", str(length))
    with pytest.raises(po.ExperienceError, match=text):
        wrong(e)
