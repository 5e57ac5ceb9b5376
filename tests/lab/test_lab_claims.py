"""Measurements of the lab that wait for an effect give up where it does not come."""

from __future__ import annotations

import math

import pytest

import polopt as po
from polopt.credit import ConstantAdvantage
from polopt.lab import claims


def test_what_never_grows_and_never_succeeds_is_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "MOST_BATCHES", 3)
    idle = po.method("dr-grpo", length=1).but(credit=ConstantAdvantage(value=0.0))
    assert math.isnan(claims.rare_arm(idle, steps=2))
    assert math.isnan(claims.collapse(idle, seeds=1))


def test_what_grows_and_succeeds_is_measured() -> None:
    learning = po.method("dr-grpo", group=16, length=1)
    assert claims.rare_arm(learning, steps=4) > 1.01
    assert 1 <= claims.collapse(learning, seeds=1) <= 8
