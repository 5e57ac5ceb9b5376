"""Micro-batches: of rows as they stand, of whole groups, and of nothing where nothing contributes."""

from collections.abc import Iterable

import pytest
import torch

import polopt as po
from polopt import Experience, ExperienceError


def test_nothing_to_learn_from_is_no_micro_batch() -> None:
    batch = Experience(mask=torch.ones(4, 2, dtype=torch.bool))
    assert list(batch.split(2, only=torch.zeros(4, dtype=torch.bool))) == []
    assert [len(part) for part in batch.split(2, only=torch.tensor([True, False, True, True]))] == [2, 1]


def grouped() -> Experience:
    return Experience(mask=torch.ones(9, 2, dtype=torch.bool), group=torch.tensor([7, 3, 900, 3, 7, 7, 3, 5, 7]))


def rows(pieces: Iterable[Experience]) -> list[list[int]]:
    return [place.tolist() for piece in pieces if (place := piece.place()) is not None]


def test_groups_stay_together() -> None:
    """Whole groups in the order of their first rows, as many as fit; a larger one alone."""
    batch = grouped()
    assert rows(batch.split(4, binds="group")) == [[0, 4, 5, 8], [1, 2, 3, 6], [7]]
    assert rows(batch.split(5, binds="group")) == [[0, 4, 5, 8], [1, 2, 3, 6, 7]]
    assert rows(batch.split(1, binds="group")) == [[0, 4, 5, 8], [1, 3, 6], [2], [7]]
    assert rows(batch.split(9, binds="group")) == [list(range(9))]
    some = torch.tensor([False, True, True, False, True, False, True, True, True])
    assert rows(batch.split(2, only=some, binds="group")) == [[1, 6], [2], [4, 8], [7]]
    assert list(batch.split(2, only=torch.zeros(9, dtype=torch.bool), binds="group")) == []
    assert all(piece.full_batch is batch for piece in batch.split(3, binds="group"))


def test_rows_alone_are_cut_as_they_stand() -> None:
    assert rows(grouped().split(4, binds="row")) == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]


def test_groups_that_are_not_there_cannot_stay_together() -> None:
    batch = Experience(mask=torch.ones(4, 2, dtype=torch.bool))
    with pytest.raises(ExperienceError, match=r"needs experience\.group"):
        list(batch.split(2, binds="group"))


def test_what_a_sentence_binds_is_the_strictest_of_its_active_parts() -> None:
    paired = po.objectives.PairedObjective()
    routed = po.objectives.BranchedObjective(
        routes=[
            po.objectives.Branch(objective=po.objectives.Surrogate()),
            po.objectives.Branch(objective=paired),
        ]
    )
    assert po.objectives.Surrogate().binding == "decision"
    assert po.objectives.Surrogate(aggregate=po.objectives.SequenceMean()).binding == "row"
    assert paired.binding == routed.binding == "group"
    phases = [
        po.objectives.Phase(objective=paired, batches=1),
        po.objectives.Phase(objective=routed.routes[0].objective),
    ]
    schedule = po.objectives.ObjectiveSchedule(phases=phases)
    assert schedule.binding == "group"
    schedule.step()
    assert schedule.binding == "row"
    binding = {slug: po.method(slug).objective.binding for slug in ("grpo", "gspo", "ppo", "nft", "sft")}
    assert "group" not in binding.values()
    assert (binding["gspo"], binding["ppo"]) == ("row", "decision")
