"""The random batches of the checks, by the name that the tests know them by."""

from polopt.checks.batches import (
    HORIZON,
    LEAVES,
    VOCABULARY,
    Batch,
    gaussian_batch,
    outcome_batch,
    poison_like,
    poisoned,
    random_batch,
    random_mask,
    with_columns,
    without_decisions,
)

__all__ = [
    "HORIZON",
    "LEAVES",
    "VOCABULARY",
    "Batch",
    "gaussian_batch",
    "outcome_batch",
    "poison_like",
    "poisoned",
    "random_batch",
    "random_mask",
    "with_columns",
    "without_decisions",
]
