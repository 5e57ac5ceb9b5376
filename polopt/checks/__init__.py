"""Invariances of parts: what holds, what breaks, and on which smallest example."""

from polopt.checks.batches import Batch, random_batch
from polopt.checks.trials import Row

__all__ = ["Batch", "Row", "random_batch"]
