"""A pool of rollout workers as Ray actors, which replaces lost workers and runs their tasks again."""

from __future__ import annotations

import collections
import dataclasses
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from polopt.training.cluster.rollout_actor import RolloutActor, WorkerResult, WorkerTask
from polopt.training.language_recipe import LanguageRecipe
from polopt.training.run import RunError

# Seconds between checks of the time limits, while no worker reports.
POLL_S = 0.5
# Seconds without a worker before a warning: the first ones take a few to begin.
WARN_AFTER_S = 15.0

log = logging.getLogger("polopt.cluster")


class ClusterError(RunError):
    """Raised where the cluster cannot go on with the run. The run's folder is whole, and `--resume` continues it."""


@dataclasses.dataclass
class Counts:
    """Counts of losses. died: workers that were lost. again: shares that were played again for it. rows: about how many
    rows they had."""

    died: int = 0
    again: int = 0
    rows: int = 0

    def since(self, earlier: Counts) -> Counts:
        return Counts(self.died - earlier.died, self.again - earlier.again, self.rows - earlier.rows)


@dataclasses.dataclass
class _Member:
    """A worker. call: the call it is busy with, a Ray reference. order: that call's position in the present request;
    None while the worker prepares, -1 where the request has been abandoned."""

    actor: Any
    call: Any
    since: float
    order: int | None = None
    place: str = ""

    @property
    def ready(self) -> bool:
        return bool(self.place)


class WorkerPool:
    """A pool of `workers` actors of a recipe. `run` runs tasks; `publish` stores the weights that they are run with.

    Every task has one result, that of the first worker which finished it: where a worker dies, or takes too long and is
    killed, another one runs the same task, from the same weights and random numbers. A worker has one task at a time,
    so nothing queues but the caller's present tasks. Weights are put into Ray's object store once for each version, and
    are freed by `drop`.

    `run` is for one thread at a time; `publish` and `drop` may be called from another.

    domain: makes the `Domain` of the recipe in each worker, which imports it by name.
    """

    def __init__(self, recipe: LanguageRecipe, domain: Callable[[LanguageRecipe], Any]) -> None:
        import ray

        assert recipe.cluster is not None
        self.ray, self.spec, self.counts = ray, recipe.cluster, Counts()
        self._domain, self._recipe = domain, recipe.to_yaml()
        self._threads = recipe.threads or max(1, int(self.spec.cpus))
        self._weights: dict[int, Any] = {}
        self._members: list[_Member] = []
        self._failed = 0
        self._alone: float | None = None
        self._warned = False
        self._actor: Any = ray.remote(RolloutWorker).options(
            num_cpus=self.spec.cpus, num_gpus=self.spec.gpus, max_restarts=0, max_task_retries=0
        )
        self._recruit()

    @property
    def workers(self) -> int:
        """Returns the number of workers that are ready."""
        return sum(member.ready for member in self._members)

    def publish(self, version: int, weights: Tensor) -> None:
        """Stores the weights of a version."""
        self._weights[version] = self.ray.put(weights.numpy())

    def weights(self, version: int) -> Tensor:
        """Returns a copy of the weights of a version."""
        return torch.from_numpy(self.ray.get(self._weights[version]).copy())

    def drop(self, before: int | None = None) -> None:
        """Frees the weights of versions before `before`; of all if None."""
        for version in [v for v in self._weights if before is None or v < before]:
            del self._weights[version]

    def run(self, tasks: Sequence[WorkerTask], stopped: Callable[[], bool] = lambda: False) -> list[WorkerResult]:
        """Runs tasks on the workers and returns the results, in the order of the tasks. stopped: polled now and then;
        True abandons the request.

        Raises:
            RequestAbandoned: `stopped` returned True.
            ClusterError: a task has cost too many workers, or there was none for too long.
            Exception: whatever a task raised in a worker.
        """
        answers: dict[int, WorkerResult] = {}
        waiting, tries = collections.deque(range(len(tasks))), [0] * len(tasks)
        try:
            while len(answers) < len(tasks):
                if stopped():
                    raise RequestAbandoned
                self._recruit()
                for member in self._idle():
                    if waiting:
                        self._assign(member, waiting.popleft(), tasks)
                for number, answer in self._finished():
                    if isinstance(answer, WorkerResult):
                        answers[number] = _checked(answer, tasks[number])
                        continue
                    tries[number] += 1
                    if tries[number] >= self.spec.attempts:
                        raise ClusterError(
                            f"{tries[number]} workers were lost over one share of rollouts, the last one as {answer}; "
                            "look for what it needs too much of, then continue with --resume"
                        )
                    self.counts.again += 1
                    self.counts.rows += tasks[number].rows
                    waiting.appendleft(number)
        finally:
            for member in self._members:
                member.order = None if member.order is None else -1
        return [answers[i] for i in range(len(tasks))]

    def close(self) -> None:
        """Ends the workers."""
        for member in self._members:
            self._kill(member)
        self._members = []

    def _recruit(self) -> None:
        """Starts workers up to their number; a new one waits for its place on a node.

        Raises:
            ClusterError: there has been no worker for too long.
        """
        while len(self._members) < self.spec.workers:
            actor: Any = self._actor.remote()
            call = actor.prepare.remote(self._domain, self._recipe, os.getcwd(), sys.path, self._threads)
            self._members.append(_Member(actor, call, _now()))
        if self.workers:
            self._alone, self._warned = None, False
            return
        self._alone = _now() if self._alone is None else self._alone
        if not self._warned and _now() - self._alone > WARN_AFTER_S:
            self._warned = True
            log.warning("there is no rollout worker; waiting up to %.0f s for one", self.spec.patience)
        if _now() - self._alone > self.spec.patience:
            raise ClusterError(
                f"no rollout worker for {self.spec.patience:.0f} s: the cluster has no node with {self.spec.cpus:g} "
                f"CPUs and {self.spec.gpus:g} GPUs to spare; give it one, then continue with --resume"
            )

    def _idle(self) -> Iterable[_Member]:
        return [member for member in self._members if member.ready and member.call is None]

    def _assign(self, member: _Member, number: int, tasks: Sequence[WorkerTask]) -> None:
        # In a list, so that the actor fetches the weights only where it lacks them.
        weights = [self._weights[tasks[number].version]]
        member.call, member.order, member.since = member.actor.work.remote(tasks[number], weights), number, _now()

    def _finished(self) -> Iterable[tuple[int, Any]]:
        """Returns the results that have come since: the task's position, and its result or the reason of its loss."""
        busy = {member.call: member for member in self._members if member.call is not None}
        done, _ = self.ray.wait(list(busy), num_returns=1, timeout=POLL_S)
        found = []
        for member in [busy[call] for call in done]:
            order, outcome = member.order, self._outcome(member)
            if order is not None and order >= 0:
                found.append((order, outcome))
        for member in self._late():
            order = member.order
            self._lose(member, f"it took more than {self.spec.seconds:g} s")
            if order is not None and order >= 0:
                found.append((order, "taking too long"))
        return found

    def _outcome(self, member: _Member) -> Any:
        """Returns the result of a worker's call, or the reason of the worker's loss as text."""
        errors = self.ray.exceptions
        try:
            value = self.ray.get(member.call)
        except errors.RayTaskError as error:
            if isinstance(error.cause, errors.RayError):  # such as weights that did not reach it
                return self._lose(member, _reason(error.cause))
            abandoned, member.call, member.order = member.order == -1, None, None
            if abandoned:
                return None
            raise (error.cause if isinstance(error.cause, Exception) else error) from error
        except errors.RayError as error:
            return self._lose(member, _reason(error))
        if member.order is None:
            member.place, self._failed = value, 0
            log.info("a rollout worker is ready on %s", value)
        member.call = member.order = None
        return value

    def _late(self) -> list[_Member]:
        limit = self.spec.seconds
        return [m for m in self._members if m.ready and m.call is not None and _now() - m.since > limit]

    def _lose(self, member: _Member, reason: str) -> str:
        """Removes a lost worker, which will be replaced, and returns the reason.

        Raises:
            ClusterError: too many workers in a row were lost before they were ready.
        """
        self._kill(member)
        self._members.remove(member)
        self.counts.died += 1
        where = f" on {member.place}" if member.place else ", before it was ready,"
        again = "; its share is played again" if (member.order or 0) >= 0 and member.ready else ""
        log.warning("a rollout worker%s was lost: %s%s", where, reason, again)
        if not member.ready:
            self._failed += 1
            if self._failed >= self.spec.attempts:
                raise ClusterError(f"{self._failed} rollout workers in a row died before they were ready: {reason}")
        return reason

    def _kill(self, member: _Member) -> None:
        self.ray.kill(member.actor, no_restart=True)


class RequestAbandoned(Exception):
    """Raised where a request for rollouts was abandoned."""


class RolloutWorker(RolloutActor):
    """A rollout actor whose weights are read from Ray's object store."""

    def work(self, task: WorkerTask, weights: list[Any]) -> WorkerResult:  # type: ignore[override]
        import ray

        return super().work(task, lambda: torch.from_numpy(ray.get(weights[0]).copy()))


def _checked(result: WorkerResult, task: WorkerTask) -> WorkerResult:
    if (result.number, result.version) != (task.number, task.version):
        raise ClusterError(
            f"an answer to {result.number} with weights {result.version} came for {task.number} with {task.version}"
        )
    return result


def _reason(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _now() -> float:
    return time.monotonic()
