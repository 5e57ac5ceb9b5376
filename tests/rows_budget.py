"""Rows of the battery: what groups of different sizes need."""

from __future__ import annotations

from battery import PartRow
from rows_selection import worth

from polopt.objectives import EntropyBonus, PromptMean, Surrogate
from polopt.sampling import TopK

OBJECTIVES = {
    "prompt mean": PartRow(Surrogate(aggregate=PromptMean(), regularise=[EntropyBonus(coefficient=0.1)])),
    "prompt mean of sums": PartRow(Surrogate(aggregate=PromptMean(decisions="sum"))),
}

SELECTS = {
    "all that reach it": PartRow(TopK(count=None, threshold=0.5), key=worth),
}
