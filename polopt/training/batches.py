"""When the batches of a stage are sampled."""

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
    """One batch before anything is made of it. begun: on the clock, when its sampling was. spent: on it, as
    the source's `usage` counts. metrics: what the parts of the sampling did to it."""

    experience: Experience
    begun: float
    spent: Mapping[str, float]
    metrics: Mapping[str, float] = {}


def collect(source: StageSource, sampling: Sampling) -> RolloutBatch:
    """Sample one batch."""
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
    """The batches of a stage, in order."""

    def batch(self, step: int) -> RolloutBatch:
        """The batch of this step."""
        ...

    def learned(self, step: int) -> None:
        """The policy has learned from the batch of this step, or there was nothing to learn from it."""
        ...

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must hold beside policy, learner and source."""
        ...

    def record(self, batch: RolloutBatch, step: int) -> dict[str, float]:
        """What to log of how a batch came about."""
        ...


class SynchronousBatches:
    """Each batch when it is asked for, from the policy as it is."""

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
    """The batches that one process of a team has, for all of them. supply: theirs, in the process that leads. device:
    where each learns."""

    def __init__(self, supply: BatchIterator | None, team: ProcessGroup, device: str) -> None:
        self.supply, self.team, self.device = supply, team, device

    def batch(self, step: int) -> RolloutBatch:
        def ask(supply: BatchIterator) -> RolloutBatch:
            found = supply.batch(step)
            return found._replace(experience=found.experience.to("cpu"))

        found = self._hear(ask)
        return found._replace(experience=found.experience.to(self.device))

    def learned(self, step: int) -> None:
        if self.supply is not None:
            self.supply.learned(step)

    def state(self) -> dict[str, Tensor]:
        return {} if self.supply is None else self.supply.state()

    def record(self, batch: RolloutBatch, step: int) -> dict[str, float]:
        return self._hear(lambda supply: supply.record(batch, step))

    def _hear(self, ask: Callable[[BatchIterator], T]) -> T:
        def work() -> T:
            assert self.supply is not None  # where this process leads
            return ask(self.supply)

        return self.team.broadcast_from_main(work)
