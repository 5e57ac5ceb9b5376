"""An executor of episodes in Ray actors, on every machine of a cluster; the episodes of a lost actor are replayed."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pickle
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Literal

import pydantic

from polopt.config import ConfigError
from polopt.training.cluster.address import connected
from polopt.training.spread import at
from polopt.worlds.contract import new_episode
from polopt.worlds.executors import (
    LOST,
    AsyncExecutor,
    EpisodeExecutor,
    ExecutorSpec,
    Maker,
    PendingCall,
    PendingEpisode,
    overlapped,
)
from polopt.worlds.protocol import Episode, Step, Task, Tasks

# Seconds within which a worker must have begun.
BEGIN = 300.0
# Workers that may die under one call before its episode is given up, as their likely cause of death.
DEATHS = 3
# A call, its arguments and its answer.
RecordedCall = tuple[str, tuple[str, ...], Any]


class NonDeterministicEpisode(Exception):
    """Raised where a replayed episode answers otherwise than before."""


class EpisodeActor:
    """A Ray actor that holds episodes, in a process of its own."""

    def __init__(self) -> None:
        self.worlds: list[Tasks] = []
        self.episodes: dict[int, Episode] = {}

    def prepare(self, makers: bytes, folder: str, path: Sequence[str]) -> None:
        """Makes the worlds. makers: pickled. folder: where their relative paths begin. path: where modules may be."""
        at(folder, path)
        self.worlds = [maker() for maker in pickle.loads(makers)]

    def call(
        self,
        number: int,
        world: int | Tasks | None,
        begin: tuple[Task, Sequence[RecordedCall]] | None,
        name: str,
        args: tuple[str, ...],
        forget: Sequence[int],
    ) -> Any:
        """Returns the answer of episode `number` to a call. world, begin: of an episode that is new here, its world,
        and its task with the calls to replay. forget: episodes to drop."""
        for other in forget:
            self.episodes.pop(other, None)
        if begin is not None and world is not None:
            task, past = begin
            episode = new_episode(self.worlds[world] if isinstance(world, int) else world, task)
            for method, arguments, answer in past:
                if not _same(getattr(episode, method)(*arguments), answer):
                    raise NonDeterministicEpisode
            self.episodes[number] = episode
        return getattr(self.episodes[number], name)(*args)


def _same(answer: Any, before: Any) -> bool:
    """Returns whether two answers are equal in all that the policy observes; rewards are not compared, as the recorded
    one stays."""
    if isinstance(answer, Step) and isinstance(before, Step):
        return (answer.observation, answer[2:4]) == (before.observation, before[2:4])
    return answer == before


@dataclasses.dataclass(eq=False)
class ActorHandle:
    """The driver's handle of an actor. forgotten: episodes there that can be dropped."""

    actor: Any
    alive: bool = True
    forgotten: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(eq=False)
class RemoteEpisode(PendingEpisode):
    """An episode in an actor. world: its number, or a Ray reference. settled: whether its actor has it. past: its calls
    and answers so far. deaths: of actors during its present call."""

    number: int = 0
    world: int | Any = 0
    worker: ActorHandle | None = None
    past: list[RecordedCall] = dataclasses.field(default_factory=list)
    settled: bool = False
    deaths: int = 0

    def __del__(self) -> None:
        if self.worker is not None:
            self.worker.forgotten.append(self.number)


class ClusterExecutor(AsyncExecutor):
    """An executor with `workers` Ray actors, spread over the cluster, each with `threads` calls at a time.

    A call that takes longer than `timeout` seconds loses its episode and ends the worker: its process is killed, so
    that nothing goes on hanging. The other episodes of a worker that has ended, for this or any reason, are replayed by
    another from the record of the policy's answers. Worlds must answer equal actions equally; an episode that does not
    is lost too, and so is one under whose call three workers die.

    makers: how each world is made in a worker. Another world is sent there as it is.
    """

    def __init__(
        self,
        makers: Sequence[tuple[Tasks, Maker]] = (),
        *,
        workers: int,
        threads: int = 1,
        timeout: float | None = None,
        cpus: float = 0.0,
        address: str = "auto",
    ) -> None:
        super().__init__()
        self._stay = contextlib.ExitStack()  # connected as long as this executor lives
        self.ray = self._stay.enter_context(connected(address))
        self.threads, self.timeout = threads, timeout
        self._worlds = [world for world, _ in makers]
        self._sent: dict[int, tuple[Tasks, Any]] = {}
        self._kind = self.ray.remote(num_cpus=cpus, max_concurrency=threads, max_restarts=0)(EpisodeActor)
        self._spread = bool(cpus)
        self._makers = self.ray.cloudpickle.dumps([maker for _, maker in makers])
        self._opened = 0
        self.workers: list[ActorHandle] = []
        for _ in range(DEATHS):
            self.workers += self._begun(workers - len(self.workers))
        if len(self.workers) < workers:
            raise ConfigError(
                f"episodes.workers = {workers}: only {len(self.workers)} could begin; is there room in the cluster, "
                "memory and CPUs (episodes.cpus of each)?"
            )

    def _begun(self, count: int) -> list[ActorHandle]:
        """Starts up to `count` workers, and returns those that are ready.

        Raises:
            ConfigError: a world cannot be made there.
        """
        started: dict[Any, ActorHandle] = {}
        if not count:
            return []
        for number in range(count):
            worker = ActorHandle(self._kind.options(scheduling_strategy=self._where(number)).remote())
            started[worker.actor.prepare.remote(self._makers, os.getcwd(), sys.path)] = worker
        ready, waiting = self.ray.wait(list(started), num_returns=count, timeout=BEGIN)
        try:
            return [started[ref] for ref in ready if self._there(ref)]
        finally:
            for ref in waiting:
                self.ray.kill(started[ref].actor)

    def _where(self, number: int) -> Any:
        """Returns the scheduling strategy of a new worker. Ray spreads workers that reserve CPUs, and not those that
        reserve none, which get a node in turn."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        nodes = sorted(node["NodeID"] for node in self.ray.nodes() if node["Alive"])
        if self._spread or not nodes:
            return "SPREAD"
        return NodeAffinitySchedulingStrategy(nodes[number % len(nodes)], soft=True)

    def _there(self, prepared: Any) -> bool:
        """Returns whether a worker has begun; False if it died meanwhile.

        Raises:
            ConfigError: a world cannot be made there.
        """
        errors = self.ray.exceptions
        try:
            self.ray.get(prepared)
        except errors.RayActorError:
            return False
        except errors.RayTaskError as error:
            reason = str(error.cause).strip().partition("\n")[0]
            raise ConfigError(f"episodes.where = 'cluster': a worker cannot make the world: {reason}") from None
        return True

    def open(self, world: Tasks, tasks: Sequence[Task]) -> list[RemoteEpisode]:
        first, self._opened = self._opened, self._opened + len(tasks)
        where = self._number(world)
        return [RemoteEpisode(task, number=first + i, world=where) for i, task in enumerate(tasks)]

    def _number(self, world: Tasks) -> Any:
        """Returns the worker's key of a world: its number, or a Ray reference to a world that is sent."""
        for number, known in enumerate(self._worlds):
            if known is world:
                return number
        if id(world) not in self._sent:
            self._sent[id(world)] = (world, self.ray.put(world))  # kept, so that the id stays its own
        return self._sent[id(world)][1]

    def call(self, handles: Sequence[RemoteEpisode], name: str, arguments: Sequence[tuple[str, ...]]) -> list[Any]:
        answers: list[Any] = [LOST] * len(handles)
        rounds = [list(range(len(handles)))] if handles else []
        while rounds:
            batch = rounds.pop()
            self._settle([handles[i] for i in batch])
            calls = [self._call(handles[i], name, arguments[i]) for i in batch]
            done = overlapped(calls, {call.lane: self.threads for call in calls})
            died: dict[ActorHandle, list[int]] = {}
            for i, future in zip(batch, done, strict=True):
                if future is None:
                    continue
                error = future.exception()
                cause: Any = getattr(error, "cause", None) or error
                if error is None:
                    answers[i], handles[i].deaths, handles[i].why = future.result(), 0, "timeout"
                    self._note(handles[i], name, arguments[i], answers[i])
                elif isinstance(error, self.ray.exceptions.RayActorError):
                    died.setdefault(handles[i].worker, []).append(i)  # type: ignore[arg-type]
                elif isinstance(cause, NonDeterministicEpisode):
                    handles[i].why = "differs"
                else:
                    raise cause
            for worker, failed in died.items():
                # Calls begin in order: if it died by itself, one of the first was under way.
                suspects = failed[: self.threads] if worker.alive else []
                self._end(worker)
                for i in suspects:
                    handles[i].deaths += 1
                    handles[i].why = "died"
                rounds += [failed[len(suspects) :]] if len(failed) > len(suspects) else []
                rounds += [[i] for i in suspects if handles[i].deaths < DEATHS]  # alone, to spare the others
        return answers

    def _note(self, handle: RemoteEpisode, name: str, args: tuple[str, ...], answer: Any) -> None:
        if name == "reset":
            handle.past = []
        if name in ("reset", "step"):
            handle.past.append((name, args, answer))

    def _settle(self, handles: Sequence[RemoteEpisode]) -> None:
        """Assigns a live worker to every episode without one, in turn, and replaces dead workers."""
        alive = [worker for worker in self.workers if worker.alive]
        if len(alive) < len(self.workers):
            alive += self._begun(len(self.workers) - len(alive))
            self.workers = alive
        if not alive:
            raise RuntimeError("all workers of episodes are gone, and no other could begin; the run can be resumed")
        moving = [handle for handle in handles if handle.worker is None or not handle.worker.alive]
        for i, handle in enumerate(moving):
            self.again += bool(handle.past)
            handle.worker, handle.settled = alive[i % len(alive)], False

    def _call(self, handle: RemoteEpisode, name: str, args: tuple[str, ...]) -> PendingCall:
        worker, settled = handle.worker, handle.settled
        assert worker is not None
        handle.settled = True
        # A reset needs no replay of earlier calls.
        past = [] if settled or name == "reset" else handle.past
        new = (None, None) if settled else (handle.world, (handle.task, past))
        seconds = None if self.timeout is None else self.timeout * (1 + len(past))

        def begin() -> Future[Any]:
            forget, worker.forgotten = worker.forgotten, []
            return worker.actor.call.remote(handle.number, *new, name, args, forget).future()

        return PendingCall(worker, begin, seconds, functools.partial(self._end, worker))

    def _end(self, worker: ActorHandle) -> None:
        if worker.alive:
            worker.alive = False
            self.ray.kill(worker.actor)


class ClusterExecutorSpec(ExecutorSpec):
    """Episodes in Ray actors, see `ClusterExecutor`.

    workers: actors.
    threads: of each actor, and so episodes at once in it.
    timeout: seconds after which an episode's call is given up, None for never.
    cpus: what each actor takes of its node.
    address: of the cluster, where the run is not on one already.
    """

    where: Literal["cluster"] = "cluster"
    workers: pydantic.PositiveInt = 8
    threads: pydantic.PositiveInt = 1
    timeout: float | None = pydantic.Field(default=60.0, gt=0)
    cpus: float = pydantic.Field(default=0.0, ge=0)
    address: str = "auto"

    def build(self, makers: Sequence[tuple[Tasks, Maker]]) -> EpisodeExecutor:
        settings = self.model_dump(exclude={"where"})
        return ClusterExecutor(makers, **settings)
