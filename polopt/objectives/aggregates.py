"""Aggregates: how per-token terms become one scalar."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.objectives.parts import Aggregate


class TokenMean(Aggregate):
    """sum_it m l / sum_it m: every decision of the batch counts the same."""

    binds = "decision"

    def weights(self, experience: Experience) -> Tensor:
        return experience.mask.double()

    def denominator(self, full_batch: Experience) -> Tensor:
        return full_batch.mask.sum()


class SequenceMean(Aggregate):
    """mean_i (1/|y_i|) sum_t m l: every row counts the same. Rows without decisions do not count."""

    def weights(self, experience: Experience) -> Tensor:
        return experience.mask.double() / experience.lengths.clamp(min=1)[:, None]

    def denominator(self, full_batch: Experience) -> Tensor:
        return full_batch.mask.any(1).sum()


class TurnMean(Aggregate):
    """mean_i mean_h mean_(t in turn h of row i) l: rows count the same, and so do the turns of a row, and the decisions
    of a turn. Rows and turns without decisions do not count. With one turn a row it is `SequenceMean`.

    turns: "sum" adds up those of a row, as the terms of a ratio of whole turns; "all" counts every turn of the batch
        the same, as if it were a row of its own.
    """

    turns: Literal["mean", "sum", "all"] = "mean"

    reads = frozenset({"turn"})

    def weights(self, experience: Experience) -> Tensor:
        mask = experience.mask
        number, row, size = ops.turns(experience.turn, mask)
        if not len(size):
            return mask.double()
        count = size * ops.group_size(row) if self.turns == "mean" else size
        return (1 / count.double())[number] * mask

    def denominator(self, full_batch: Experience) -> Tensor:
        if self.turns != "all":
            return full_batch.mask.any(1).sum()
        _, _, size = ops.turns(full_batch.turn, full_batch.mask)
        return torch.tensor(len(size), device=full_batch.device)


class SequenceSum(Aggregate):
    """(1 / (B C)) sum_it m l: rows are summed, not averaged, so a row's length does not dilute its decisions.

    length: the constant C; None takes the batch's `horizon`, the most decisions a row may hold. All B rows
    count, empty ones too; on a route, all of its rows. Source: Dr. GRPO, arXiv:2503.20783.

    Raises:
        ExperienceError: length is None and the batch has no horizon.
    """

    length: int | None = None

    def setup(self) -> None:
        if self.length is not None and self.length < 1:
            raise ValueError(f"objectives.SequenceSum: length must be >= 1, found {self.length}")

    def weights(self, experience: Experience) -> Tensor:
        return experience.mask.double()

    def denominator(self, full_batch: Experience) -> Tensor:
        length = self.length if self.length is not None else full_batch.horizon
        if length is None:
            raise ExperienceError(
                "objectives.SequenceSum needs a constant length: set SequenceSum(length=...) or give the batch "
                "its horizon, found neither"
            )
        return torch.tensor(float(full_batch.row_count * length), device=full_batch.device)


class PromptMean(Aggregate):
    """mean_g mean_(i in g) sum_t m l: every prompt counts the same, however many rows it has.

    decisions: "sum" adds up those of a row, "mean" takes their mean, as `SequenceMean`. Rows without decisions, and
    prompts without rows, do not count. With groups of one size, "mean" is `SequenceMean`.
    """

    decisions: Literal["mean", "sum"] = "mean"

    reads = frozenset({"group"})

    def weights(self, experience: Experience) -> Tensor:
        full_batch = experience.full_batch
        rows = experience.local_rows(ops.group_sum(full_batch.mask.any(1).double(), full_batch.group)).clamp(min=1)
        weights = experience.mask.double() / rows[:, None]
        return weights if self.decisions == "sum" else weights / experience.lengths.clamp(min=1)[:, None]

    def denominator(self, full_batch: Experience) -> Tensor:
        return torch.tensor(float(len(full_batch.group[full_batch.mask.any(1)].unique())), device=full_batch.device)
