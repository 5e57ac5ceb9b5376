"""The iterators over a stage's batches: when each batch is sampled, and in which process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from torch import Generator, Tensor

from polopt.experience import Experience
from polopt.sampling import Sampling
from polopt.training.measure import metrics_of
from polopt.training.process_group import ProcessGroup

T = TypeVar("T")


class RolloutBatch(NamedTuple):
    """One batch as it was sampled, before rewards and credit. begun: the clock's time at which its sampling began, in
    seconds. spent: resources used for it, as the source's `usage` counts them. metrics: the batch metrics of the
    sampling's parts."""

    experience: Experience
    begun: float
    spent: Mapping[str, float]
    metrics: Mapping[str, float] = {}


def collect(source: StageSource, sampling: Sampling) -> RolloutBatch:
    """Samples one batch and measures the resources used."""
    begun, before = time.perf_counter(), source.usage()
    experience = sampling(source)
    return RolloutBatch(experience, begun, usage_since(before, source), metrics_of(sampling, experience))


def usage_since(before: Mapping[str, float], source: StageSource) -> dict[str, float]:
    """Returns what a source has spent since its `usage` was `before`."""
    return {name: value - before[name] for name, value in source.usage().items()}


class StageSource(Protocol):
    """A source of experience whose position is part of a checkpoint, and whose work is counted."""

    generator: Generator

    def usage(self) -> dict[str, float]:
        """Returns what has been spent so far, by name: "sampled" decisions, "seconds/<kind>", "episodes/<failure>"."""
        ...

    def state(self) -> dict[str, Any]:
        """Returns the position in the order of tasks, as plain data."""
        ...

    def load(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned."""
        ...


class BatchIterator(Protocol):
    """An iterator over the batches of a stage, in order."""

    def batch(self, step: int) -> RolloutBatch:
        """Returns the batch of this step."""
        ...

    def learned(self, step: int) -> None:
        """Advances by a batch: called after the policy has learned from the batch of this step, or has skipped an empty
        one."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Returns the tensors that a checkpoint must hold besides those of policy, learner and source."""
        ...

    def record(self, batch: RolloutBatch, step: int) -> dict[str, float]:
        """Returns metrics of how a batch was sampled."""
        ...


class SynchronousBatches:
    """A batch iterator that samples each batch at its step, from the current policy."""

    def __init__(self, source: StageSource, sampling: Sampling) -> None:
        self.source, self.sampling = source, sampling

    def batch(self, step: int) -> RolloutBatch:
        return collect(self.source, self.sampling)

    def learned(self, step: int) -> None:
        pass

    def state(self) -> dict[str, Tensor]:
        return {}

    def record(self, batch: RolloutBatch, step: int) -> dict[str, float]:
        return {}


class BroadcastBatches:
    """A batch iterator that broadcasts the main process's batches to every process. main_batches: the main process's
    iterator, None in the others. device: of this process's learner."""

    def __init__(self, main_batches: BatchIterator | None, team: ProcessGroup, device: str) -> None:
        self.main_batches, self.team, self.device = main_batches, team, device

    def batch(self, step: int) -> RolloutBatch:
        def sample(main_batches: BatchIterator) -> RolloutBatch:
            batch = main_batches.batch(step)
            return batch._replace(experience=batch.experience.to("cpu"))

        batch = self._from_main(sample)
        return batch._replace(experience=batch.experience.to(self.device))

    def learned(self, step: int) -> None:
        if self.main_batches is not None:
            self.main_batches.learned(step)

    def state(self) -> dict[str, Tensor]:
        return {} if self.main_batches is None else self.main_batches.state()

    def record(self, batch: RolloutBatch, step: int) -> dict[str, float]:
        return self._from_main(lambda main_batches: main_batches.record(batch, step))

    def _from_main(self, call: Callable[[BatchIterator], T]) -> T:
        def work() -> T:
            assert self.main_batches is not None  # in the main process
            return call(self.main_batches)

        return self.team.broadcast_from_main(work)
