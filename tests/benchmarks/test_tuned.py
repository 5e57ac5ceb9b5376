"""The table of methods at their own step sizes grows method by method."""

from __future__ import annotations

import pytest

from benchmarks import tuned


def curves(last: float, tokens: float) -> list[tuple[list[float], list[float]]]:
    """A line from 0 to `last` over so many tokens, a little higher with each seed."""
    return [([0.0, tokens], [0.0, last + 0.01 * seed]) for seed in tuned.SEEDS]


def test_equal_spending_is_that_of_the_one_that_spends_less() -> None:
    assert tuned.at_equal(([0.0, 10.0], [0.0, 0.5]), ([0.0, 20.0], [0.2, 0.6])) == pytest.approx((0.5, 0.4))
    assert tuned.at_equal(([0.0, 20.0], [0.0, 0.5]), ([0.0, 10.0], [0.2, 0.6])) == pytest.approx((0.25, 0.6))


def test_a_method_is_recorded_with_its_difference_at_equal_spending() -> None:
    base = curves(0.5, 10.0)
    found = tuned.record_of(3.0, curves(0.5, 20.0), base)
    assert found["finals"] == pytest.approx([0.5, 0.51, 0.52, 0.53, 0.54])
    # After 10 of 20 tokens the line has come half as far.
    gaps = [(0.5 + 0.01 * seed) / 2 - (0.5 + 0.01 * seed) for seed in tuned.SEEDS]
    assert found["at equal"]["estimate"] == pytest.approx(sum(gaps) / 5)
    assert tuned.record_of(1.0, base, None)["at equal"] is None


def test_only_what_has_no_result_is_measured_and_grpo_first_where_its_curves_are_not_kept() -> None:
    methods = {"grpo": tuned.record_of(1.0, curves(0.5, 10.0), None)}
    data = {"tasks": {"chains": {"methods": methods, "failed": {"dapo": "a reason"}}}}
    everything = tuned.wanted(data, ["chains"], [])
    assert ("rloo", "chains") in everything
    assert not {("grpo", "chains"), ("dapo", "chains")} & set(everything)
    assert tuned.wanted(data, ["chains"], ["dapo"]) == [("dapo", "chains")]
    del methods["grpo"]["curves"]
    assert tuned.wanted(data, ["chains"], ["dapo"]) == [("grpo", "chains"), ("dapo", "chains")]


def test_the_table_has_the_methods_of_all_days() -> None:
    base = curves(0.5, 10.0)
    methods = {"grpo": tuned.record_of(1.0, base, None), "rloo": tuned.record_of(3.0, curves(0.7, 10.0), base)}
    for at, record in enumerate(methods.values()):
        record["commit"] = f"commit{at}"
    data = {**tuned.stored(), "tasks": {"chains": {"methods": methods, "failed": {}}}}
    lines = tuned.markdown(data).splitlines()
    (rloo,) = (line for line in lines if line.startswith("|rloo|"))
    assert rloo == "|rloo|3x|72.0 (70.0 to 74.0)|+20.0 (+20.0 to +20.0) *|+20.0 (+20.0 to +20.0)|0|commit1|"
