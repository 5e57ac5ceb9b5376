"""Who says when the batches of a stage are sampled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, Self

from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.sampling import Source


class Supply(Protocol):
    """The batches of a stage, in order."""

    def batch(self, step: int) -> Experience:
        """The batch of this step."""
        ...

    def learned(self, step: int) -> None:
        """The policy has learned from the batch of this step, or there was nothing to learn from it."""
        ...

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must hold beside policy, learner and source."""
        ...

    def record(self, batch: Experience, step: int) -> dict[str, float]:
        """What to log of how a batch came about."""
        ...


class InTurn:
    """Each batch when it is asked for, from the policy as it is."""

    def __init__(self, source: Source, algorithm: Algorithm) -> None:
        self.source, self.algorithm = source, algorithm

    @contextmanager
    def running(self, first: int, steps: int, tensors: Mapping[str, Tensor]) -> Iterator[Self]:
        yield self

    def batch(self, step: int) -> Experience:
        return self.algorithm.sampling(self.source)

    def learned(self, step: int) -> None:
        pass

    def state(self) -> dict[str, Tensor]:
        return {}

    def record(self, batch: Experience, step: int) -> dict[str, float]:
        return {}
