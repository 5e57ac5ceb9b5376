"""Rows of the battery: parts for groups that get help: a known solution, a bent reward, what was put into a row."""

from __future__ import annotations

import functools

from battery import Row
from rows_demonstrations import shown

from polopt.credit import Anchored, GroupMean, Relative, Together
from polopt.objectives import Clip, Surrogate, Token, Unlimited, Unsampled
from polopt.rewards import Discounted, Outcome, Shaped

beside = functools.partial(Row, batch=shown)

OBJECTIVES = {
    "unsampled": beside(Surrogate(ratio=Unsampled(ratio=Token()), trust=Unlimited()), honest=None),
    "unsampled, clipped": beside(Surrogate(ratio=Unsampled(), trust=Clip()), honest=None),
}

CREDITS = {
    "together": beside(Together(credit=Relative()), relative=True),
    "anchored": beside(Anchored(), relative=True),
    "anchored, centred": beside(Anchored(credit=Relative(baseline=GroupMean(), scale=None), factor=0.5), relative=True),
}

REWARDS = {
    "shaped": Row(Shaped()),
    "shaped, of another": Row(Shaped(reward=Outcome(scale=0.5), knee=0.3, above=0.1, below=2.0)),
    "discounted": beside(Discounted(factor=0.5)),
}
