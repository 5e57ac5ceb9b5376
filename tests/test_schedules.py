"""Settings that change in time: closed forms between the knots, counting, resuming."""

from __future__ import annotations

import math

import pytest
import torch

import polopt as po
from polopt.credit import RelativeAdvantage, WeightedAdvantage, WeightedSum
from polopt.schedules import Schedule, now


@pytest.mark.parametrize(
    ("batches", "expected"),
    [(0, 1.0), (2, 1.0), (4, 2.0), (6, 3.0), (8, 3 - (1 - math.cos(math.pi / 4))), (14, 1.0), (99, 1.0)],
)
def test_between_the_knots(batches: int, expected: float) -> None:
    schedule = Schedule(knots=[(2, 1.0), (6, 3.0), (14, 1.0)], shape=["linear", "cosine"])
    assert schedule.at(batches) == pytest.approx(expected, abs=1e-12)


def test_steps_keep_the_earlier_value() -> None:
    stairs = Schedule(knots=[(0, 1.0), (3, 0.5), (5, 0.0)], shape="step")
    assert [stairs.at(t) for t in range(7)] == [1, 1, 1, 0.5, 0.5, 0, 0]


def test_it_counts_what_the_algorithm_learned_and_resumes() -> None:
    algorithm = po.Algorithm(
        credit=WeightedSum(
            shares=[WeightedAdvantage(credit=RelativeAdvantage(), weight=Schedule(knots=[(0, 0.0), (10, 1.0)]))]
        )
    )
    for _ in range(3):
        algorithm.step()
    weight = algorithm.credit.shares[0].weight
    assert weight() == pytest.approx(0.3)
    again = po.from_yaml(algorithm.to_yaml())
    assert again.credit.shares[0].weight() == 0
    again.load_state_dict(algorithm.state_dict())
    assert again.credit.shares[0].weight() == weight()
    assert again.but(**{"objective.trust.high": 0.3}).credit.shares[0].weight() == weight()


def test_a_plain_number_is_itself() -> None:
    assert now(0.25) == 0.25
    assert now(Schedule(knots=[(0, 0.5)])) == 0.5


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"knots": []}, "rising numbers of batches, found"),
        ({"knots": [(4, 1.0), (2, 0.0)]}, r"rising numbers of batches, found \[4, 2\]"),
        ({"knots": [(0, 1.0), (2, 0.0)], "shape": ["linear", "linear"]}, "1 stretches between them, found 2 shapes"),
        ({"knots": [(0, 1.0)], "shape": "round"}, "'shape'"),
    ],
)
def test_bad_settings(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Schedule(**settings)


def test_the_count_moves_with_the_part() -> None:
    schedule = Schedule(knots=[(0, 1.0)])
    schedule.on_step()
    assert schedule.get_buffer("batches").dtype == torch.int64
    assert schedule.to(torch.float32).state_dict()["batches"] == 1
