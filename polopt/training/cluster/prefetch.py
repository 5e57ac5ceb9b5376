"""Batches that a thread samples ahead of the learner, with weights that are a fixed number of versions old."""

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
from polopt.training.cluster.worker_pool import RequestAbandoned

BEHIND = "behind."


@dataclasses.dataclass(frozen=True)
class _SampledBatch:
    """A batch, and the state after it was sampled: of the sampling part, of the random generator, and of the source's
    orders."""

    batch: RolloutBatch
    sampling: dict[str, Tensor]
    generator: Tensor
    place: dict[str, int]


class PrefetchedBatches:
    """A batch iterator that samples up to `ahead` batches before the learner reaches them. Batch t is sampled with the
    weights of version max(base, base + t - ahead): the number of batches that the run had learned from by then, `base`
    of them before the stage.

    With ahead = 0 a batch is sampled at its step. Otherwise a thread samples it as soon as these weights are published,
    from copies of the source and of the sampling part. So no more than `ahead` batches wait, no row is older than
    `ahead` versions at its step, and the weights of a row do not depend on timing. When a batch is returned, source,
    generator and sampling part of the loop are set to their state after it was sampled: a checkpoint leaves out batches
    that are still to come, and a run that goes on from it samples them again, with the same weights, which `state`
    keeps.
    """

    def __init__(self, source: ClusterSource, sampling: Sampling, policy: nn.Module, base: int) -> None:
        self.source, self.sampling, self.policy, self.base = source, sampling, policy, base
        self.worker_pool, self.ahead = source.worker_pool, source.worker_pool.spec.ahead
        self._queue: queue.SimpleQueue[_SampledBatch | BaseException] = queue.SimpleQueue()
        self._change = threading.Condition()
        self._stop, self._learned = False, 0
        self._counts = dataclasses.replace(self.worker_pool.counts)

    @contextmanager
    def running(self, first: int, steps: int, tensors: Mapping[str, Tensor]) -> Iterator[PrefetchedBatches]:
        """Runs the thread during the block, in which batches `first` to steps - 1 are available. tensors: a
        checkpoint's, where `first` is not 0."""
        self._learned = first
        for version in range(self._oldest(first), self.base + first):
            self.worker_pool.publish(version, tensors[f"{BEHIND}{version}"])
        self.worker_pool.publish(self.base + first, flat(self.policy))
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
            self.worker_pool.drop()

    def batch(self, step: int) -> RolloutBatch:
        """Returns the batch of this step.

        Raises:
            Exception: whatever sampling it raised.
        """
        if not self.ahead:
            self.source.begin(step, self.base + step)
            return collect(self.source, self.sampling)
        requested_at = time.perf_counter()
        found = self._queue.get()
        if isinstance(found, BaseException):
            raise found
        self.source.load(found.place)
        self.source.generator.set_state(found.generator)
        self.sampling.load_state_dict(found.sampling)
        return found.batch._replace(begun=requested_at)

    def learned(self, step: int) -> None:
        """Publishes the weights of the next version: called after the policy has learned from the batch of this step,
        or has skipped an empty one."""
        self.worker_pool.publish(self.base + step + 1, flat(self.policy))
        self.worker_pool.drop(self._oldest(step + 1))
        with self._change:
            self._learned = step + 1
            self._change.notify_all()

    def state(self) -> dict[str, Tensor]:
        """Returns the earlier weights of the batches to come: what a checkpoint must hold in addition to the policy."""
        now = self.base + self._learned
        return {
            f"{BEHIND}{version}": self.worker_pool.weights(version)
            for version in range(self._oldest(self._learned), now)
        }

    def record(self, batch: RolloutBatch, step: int) -> dict[str, float]:
        """Returns a step's metrics: the age of its rows in versions, and the workers and shares lost since the last
        one."""
        found, counts = {"cluster/workers": float(self.worker_pool.workers)}, self.worker_pool.counts
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
        """Returns the version of the weights that sample the batch of a step."""
        return self.base + max(0, step - self.ahead)

    def _sample(self, first: int, steps: int) -> None:
        source, sampling = self.source.clone(), copy.deepcopy(self.sampling)
        source.stopped = lambda: self._stop
        try:
            for step in range(first, steps):
                self._wait(step - self.ahead)
                source.begin(step, self._oldest(step))
                batch = collect(source, sampling)
                state = {k: v.clone() for k, v in sampling.state_dict().items()}
                self._queue.put(_SampledBatch(batch, state, source.generator.get_state(), source.state()))
                if batch.experience.mask.any():  # as the loop does after an update
                    sampling.step()
        except RequestAbandoned:
            return
        except BaseException as error:
            self._queue.put(error)

    def _wait(self, learned: int) -> None:
        """Waits until so many batches of the stage have been learned from.

        Raises:
            RequestAbandoned: the block of `running` has ended.
        """
        with self._change:
            self._change.wait_for(lambda: self._stop or self._learned >= learned)
        if self._stop:
            raise RequestAbandoned
