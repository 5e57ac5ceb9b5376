"""Rows of the battery: selections of rows and of decisions."""

from __future__ import annotations

from battery import PartRow
from row_batches import group_and_outcome, mismatched_batch

from polopt.sampling import (
    ExtremeRows,
    MatchedRows,
    MixedGroups,
    NonZeroAdvantage,
    ResampledRows,
    TopK,
    UncertainTokens,
    UniqueAnswers,
)

SELECTS = {
    "varied": PartRow(MixedGroups()),
    "best": PartRow(TopK(), key=group_and_outcome),
    "best and worst": PartRow(ExtremeRows()),
    "two best": PartRow(TopK(count=2, threshold=0.5), key=group_and_outcome),
    "distinct": PartRow(UniqueAnswers(), key=lambda e: list(zip(e.group.tolist(), e.extras["answer"], strict=True))),
    "in doubt": PartRow(UncertainTokens(threshold=0.3), keeps="decisions"),
    "matched": PartRow(MatchedRows(), batch=mismatched_batch),
    "non-zero": PartRow(NonZeroAdvantage()),
    "all that reach it": PartRow(TopK(count=None, threshold=0.5), key=group_and_outcome),
    "resampled by power": PartRow(ResampledRows(), key=group_and_outcome, keeps="repeats"),
    "resampled extremes": PartRow(ResampledRows(weights="extremes", seed=1), key=group_and_outcome, keeps="repeats"),
    "resampled best": PartRow(ResampledRows(weights="best"), key=group_and_outcome, keeps="repeats"),
}
