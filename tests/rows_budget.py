"""Rows of the battery: what groups of different sizes need."""

from __future__ import annotations

from battery import Row
from rows_selection import worth

from polopt.objectives import Entropy, PromptMean, Surrogate
from polopt.sampling import Best

OBJECTIVES = {
    "prompt mean": Row(Surrogate(aggregate=PromptMean(), regularise=[Entropy(coefficient=0.1)])),
    "prompt mean of sums": Row(Surrogate(aggregate=PromptMean(decisions="sum"))),
}

SELECTS = {
    "all that reach it": Row(Best(count=None, threshold=0.5), key=worth),
}
