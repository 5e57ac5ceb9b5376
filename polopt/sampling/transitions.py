"""Transitions drawn from a store of what the policy has met."""

from __future__ import annotations

from polopt.experience import Experience
from polopt.sampling.parts import Sampling
from polopt.sampling.source_protocols import TransitionSource


class TransitionReplay(Sampling):
    """Plays further steps of the source's environments, stores the transitions, and draws a batch of stored ones.

    A row is one decision, drawn uniformly with replacement, with the observations before and after it. A stage divides
    the batch among its minibatches.

    rows: transitions in a batch.
    steps: steps of each environment before each batch; 0 learns from what is stored alone.
    start: transitions that are stored before the first batch, of uniformly random actions.
    capacity: transitions that are stored; the oldest ones go first.
    """

    rows: int = 256
    steps: int = 1
    start: int = 0
    capacity: int = 1_000_000

    source_capabilities = frozenset({"transitions"})

    def setup(self) -> None:
        for name, least in (("rows", 1), ("steps", 0), ("start", 0), ("capacity", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"sampling.TransitionReplay: {name} must be >= {least}, found {getattr(self, name)}")
        if self.start > self.capacity:
            raise ValueError(
                f"sampling.TransitionReplay: start = {self.start} transitions do not fit into capacity = "
                f"{self.capacity}"
            )

    def batch_rows(self, rows: int) -> int:
        return self.rows

    def forward(self, source: TransitionSource) -> Experience:
        return source.transitions(self.rows, steps=self.steps, start=self.start, capacity=self.capacity)
