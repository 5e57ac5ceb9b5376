"""A table of numbers for every task, which checkpoints store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn


class TaskTable(nn.Module):
    """A table of float64 columns, one number a task: `TaskTable(right=1.0, wrong=1.0)` sets their names and initial
    values.

    The number of tasks is set by the first batch: call `sized(source.size)` before reading.
    """

    def __init__(self, **initial: float) -> None:
        super().__init__()
        self.initial = initial
        for name in initial:
            self.register_buffer(name, torch.zeros(0, dtype=torch.float64))

    def sized(self, size: int) -> Self:
        """Returns the table with a row for each of `size` tasks, which the first call creates.

        Raises:
            ValueError: the table was made for another number of tasks.
        """
        for name, value in self.initial.items():
            column = self.column(name)
            if not len(column):
                self.register_buffer(name, torch.full((size,), value, dtype=torch.float64, device=column.device))
            elif len(column) != size:
                raise ValueError(
                    f"the record of {len(column)} tasks does not belong to an environment of {size}; a part with a "
                    "record of tasks serves one environment: build the algorithm again for another"
                )
        return self

    def grown(self, size: int) -> Self:
        """Returns the table with rows for at least the first `size` tasks, for who does not know how many there are."""
        for name, value in self.initial.items():
            column = self.column(name)
            if len(column) < size:
                self.register_buffer(name, torch.cat([column, column.new_full((size - len(column),), value)]))
        return self

    def column(self, name: str) -> Tensor:
        """Returns a column, [tasks], which may be changed in place."""
        return self.get_buffer(name)

    def _load_from_state_dict(self, state_dict: Mapping[str, Tensor], prefix: str, *args: Any, **kwargs: Any) -> None:
        for name in self.initial:
            stored = state_dict.get(prefix + name)
            if stored is not None:  # buffers of the right shape, into which it is then copied
                self.register_buffer(name, torch.empty_like(stored, device=self.column(name).device))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
