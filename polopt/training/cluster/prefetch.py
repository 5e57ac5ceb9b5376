"""Batches that are sampled before their turn, by one thread, with weights that are older by a number that is fixed."""

from __future__ import annotations

import copy
import dataclasses
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn

from polopt.sampling import Sampling
from polopt.training.batches import RolloutBatch, collect
from polopt.training.cluster.pool_source import ClusterSource
from polopt.training.cluster.weights import flat
from polopt.training.cluster.worker_pool import Stopped

BEHIND = "behind."


@dataclasses.dataclass(frozen=True)
class _Sampled:
    """A batch, and how things stood when it had been sampled: what samples it, the random numbers, and the source's
    place in its orders."""

    batch: RolloutBatch
    sampling: dict[str, Tensor]
    generator: Tensor
    place: dict[str, int]


class Ahead:
    """The batches of a stage, in order. Batch t is drawn with the weights of version max(base, base + t - ahead): the
    number of batches that the run had learned from by then, `base` of them before the stage.

    With ahead = 0 a batch is sampled when it is asked for. Otherwise a thread of its own samples it as soon as these
    weights are there, from copies of the source and of the sampling part. So no more than `ahead` batches wait, no row
    is older than `ahead` versions when its turn comes, and which weights drew which row is no matter of timing. When a
    batch is handed out, source, generator and sampling part of the loop are put where they were when it had been
    sampled: a checkpoint knows nothing of batches that are still to come, and a run that goes on from it samples them
    again, with the same weights, which `state` keeps.
    """

    def __init__(self, source: ClusterSource, sampling: Sampling, policy: nn.Module, base: int) -> None:
        self.source, self.sampling, self.policy, self.base = source, sampling, policy, base
        self.crew, self.ahead = source.crew, source.crew.spec.ahead
        self._queue: queue.SimpleQueue[_Sampled | BaseException] = queue.SimpleQueue()
        self._change = threading.Condition()
        self._stop, self._learned = False, 0
        self._counts = dataclasses.replace(self.crew.counts)

    @contextmanager
    def running(self, first: int, steps: int, tensors: Mapping[str, Tensor]) -> Iterator[Ahead]:
        """Inside, batches `first` to steps - 1 can be had. tensors: a checkpoint's, where `first` is not 0."""
        self._learned = first
        for version in range(self._oldest(first), self.base + first):
            self.crew.publish(version, tensors[f"{BEHIND}{version}"])
        self.crew.publish(self.base + first, flat(self.policy))
        thread = threading.Thread(target=self._sample, args=(first, steps), name="sampling", daemon=True)
        if self.ahead:
            thread.start()
        try:
            yield self
        finally:
            with self._change:
                self._stop = True
                self._change.notify_all()
            if self.ahead:
                thread.join()
            self.crew.drop()

    def batch(self, step: int) -> RolloutBatch:
        """The batch of this step.

        Raises:
            Whatever sampling it raised.
        """
        if not self.ahead:
            self.source.begin(step, self.base + step)
            return collect(self.source, self.sampling)
        asked = time.perf_counter()
        found = self._queue.get()
        if isinstance(found, BaseException):
            raise found
        self.source.load(found.place)
        self.source.generator.set_state(found.generator)
        self.sampling.load_state_dict(found.sampling)
        return found.batch._replace(begun=asked)

    def learned(self, step: int) -> None:
        """The policy has learned from the batch of this step, or there was nothing to learn from it."""
        self.crew.publish(self.base + step + 1, flat(self.policy))
        self.crew.drop(self._oldest(step + 1))
        with self._change:
            self._learned = step + 1
            self._change.notify_all()

    def state(self) -> dict[str, Tensor]:
        """The earlier weights that batches to come are drawn with: what a checkpoint must hold beside the policy."""
        now = self.base + self._learned
        return {f"{BEHIND}{version}": self.crew.weights(version) for version in range(self._oldest(self._learned), now)}

    def record(self, batch: RolloutBatch, step: int) -> dict[str, float]:
        """What to log of a step: how many versions old its rows are, and what became of workers since the last one."""
        found, counts = {"cluster/workers": float(self.crew.workers)}, self.crew.counts
        lost, self._counts = counts.since(self._counts), dataclasses.replace(counts)
        found |= {
            "cluster/died": float(lost.died),
            "cluster/again": float(lost.again),
            "cluster/rows": float(lost.rows),
        }
        versions = batch.experience.extras.get("version")
        if versions is None or not (known := versions[versions >= 0]).numel():
            return found
        age = (self.base + step - known).double()
        return found | {"staleness/mean": float(age.mean()), "staleness/max": float(age.max())}

    def _oldest(self, step: int) -> int:
        """Version of the weights that the batch of a step is drawn with."""
        return self.base + max(0, step - self.ahead)

    def _sample(self, first: int, steps: int) -> None:
        source, sampling = self.source.twin(), copy.deepcopy(self.sampling)
        source.stopped = lambda: self._stop
        try:
            for step in range(first, steps):
                self._wait(step - self.ahead)
                source.begin(step, self._oldest(step))
                batch = collect(source, sampling)
                state = {k: v.clone() for k, v in sampling.state_dict().items()}
                self._queue.put(_Sampled(batch, state, source.generator.get_state(), source.state()))
                if batch.experience.mask.any():  # as the loop does when it has learned from it
                    sampling.step()
        except Stopped:
            return
        except BaseException as error:
            self._queue.put(error)

    def _wait(self, learned: int) -> None:
        """Until so many batches of the stage have been learned from."""
        with self._change:
            self._change.wait_for(lambda: self._stop or self._learned >= learned)
        if self._stop:
            raise Stopped
