"""Features: what is known of each row or token of a batch.

A feature is a part that reads a batch and returns a number, a truth value or a group number for each row or token.
Credit, rewards, objectives and sampling share them: as weights, conditions, branches, strata and groups.
"""

from polopt.features.base import Feature, Grouping, Mask, RowFeature, RowMask, TokenFeature, TokenMask, Unit
from polopt.features.groupings import SameKind, SameMeaning, SamePrompt, SameTask, Strata, WholeBatch
from polopt.features.masks import (
    AnswerMatches,
    FieldMask,
    Finished,
    HasTeacher,
    IsCorrect,
    IsDemonstration,
    LongerThan,
    SignalAbove,
    SolvedGroups,
    TaskKindIs,
    TopGroups,
    WellFormed,
)
from polopt.features.rows import (
    AnswerEntropy,
    Confidence,
    DecisionCount,
    Logistic,
    MeanEntropy,
    RowField,
    SuccessRate,
    TurnCount,
)

__all__ = [
    "AnswerEntropy",
    "AnswerMatches",
    "Confidence",
    "DecisionCount",
    "Feature",
    "FieldMask",
    "Finished",
    "Grouping",
    "HasTeacher",
    "IsCorrect",
    "IsDemonstration",
    "Logistic",
    "LongerThan",
    "Mask",
    "MeanEntropy",
    "RowFeature",
    "RowField",
    "RowMask",
    "SameKind",
    "SameMeaning",
    "SamePrompt",
    "SameTask",
    "SignalAbove",
    "SolvedGroups",
    "Strata",
    "SuccessRate",
    "TaskKindIs",
    "TokenFeature",
    "TokenMask",
    "TopGroups",
    "TurnCount",
    "Unit",
    "WellFormed",
    "WholeBatch",
]
