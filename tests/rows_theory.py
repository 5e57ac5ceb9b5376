"""Rows of the battery: rewards that keep a policy steady, and near a reference."""

from __future__ import annotations

from battery import Row

from polopt.rewards import Outcome, Sum, Surprise

REWARDS = {
    "surprise": Row(Surprise()),
    "outcome and surprise": Row(Sum(terms=[Outcome(), Surprise(coefficient=0.5)])),
}
