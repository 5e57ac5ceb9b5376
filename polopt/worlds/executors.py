"""Executors of episodes: in the process, with scorers in worker processes, or in threads where episodes wait."""

from __future__ import annotations

import abc
import collections
import concurrent.futures
import dataclasses
import threading
import time
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Literal

import pydantic

from polopt.config import Config
from polopt.errors import PoloptWarning
from polopt.worlds.answers import step_together
from polopt.worlds.contract import new_episode
from polopt.worlds.functions import limited
from polopt.worlds.protocol import LOST, Episode, Step, Task, Tasks, scorers_of
from polopt.worlds.scoring.place import IN_PROCESS, ScorerPlace, judged_in, pool

# The handle that `open` returns for one episode, opaque to all but the executor that returned it.
EpisodeHandle = Any
# Rebuilds a world's tasks in another process.
Maker = Callable[[], Tasks]

# Extra seconds of a call that scores many answers, in which it separates the answers that timed out from the others.
GRACE = 1.0
# Why an episode or an answer is lost: it exceeded its time limit or its memory limit; its scoring process died; or its
# replay differed from the first play.
REASONS = ("timeout", "memory", "died", "differs")


class EpisodeExecutor(abc.ABC):
    """Plays episodes in batches of calls; results have the order of the calls, whatever the order of completion.

    losses: episodes so far that were given up, and answers that their scorers lost, by reason (`REASONS`). An episode
        that is given up is truncated: the step in which it was lost has reward 0. An episode that is lost as it opens
        has its task's prompt as the first observation, and is truncated at its first step. An answer whose scorer
        exceeded a limit has reward 0, as a wrong answer has.
    again: episodes so far that were replayed because the process that played them was lost.
    cut: episodes so far that were not over after the last turn that their world declares, and were truncated there.
    full: episodes so far that were truncated because the model's context was full.
    """

    def __init__(self) -> None:
        self.losses = dict.fromkeys(REASONS, 0)
        self.again, self.cut, self.full = 0, 0, 0

    @property
    def lost(self) -> int:
        """Number of losses, over all reasons."""
        return sum(self.losses.values())

    @property
    def counts(self) -> dict[str, int]:
        """Returns `lost`, `again`, `cut` and `full` by name, and the losses of each reason, as `lost/timeout`."""
        plain = {"lost": self.lost, "again": self.again, "cut": self.cut, "full": self.full}
        return plain | {f"lost/{why}": n for why, n in self.losses.items()}

    def count(self, counts: Mapping[str, float]) -> None:
        """Adds the counts of another executor to these."""
        for name in ("again", "cut", "full"):
            setattr(self, name, getattr(self, name) + int(counts[name]))
        for why in REASONS:
            self.losses[why] += int(counts[f"lost/{why}"])

    def count_cut(self, task: Task, turns: int) -> None:
        """Counts an episode that was not over after its world's `turns`; the first one causes a warning."""
        if not self.cut:
            warnings.warn(
                f"task {task.id}: its episode was not over after the {turns} turns that the world declares, and was "
                "truncated there; let step() end it, or raise turns (all of them are counted in episodes/cut)",
                PoloptWarning,
                stacklevel=2,
            )
        self.cut += 1

    def count_full(self, task: Task, context: int) -> None:
        """Counts an episode that filled the model's context; the first one causes a warning."""
        if not self.full:
            warnings.warn(
                f"task {task.id}: its episode filled the model's context of {context} tokens and was truncated there; "
                "lower limit, max_prompt_length or the world's turns, or take a model with a longer context (all of "
                "them are counted in episodes/full)",
                PoloptWarning,
                stacklevel=2,
            )
        self.full += 1

    @abc.abstractmethod
    def open(self, world: Tasks, tasks: Sequence[Task]) -> list[EpisodeHandle]:
        """Returns a handle of a new episode, not yet reset, for each of a world's tasks."""

    @abc.abstractmethod
    def reset(self, handles: Sequence[EpisodeHandle]) -> list[str]:
        """Resets each episode and returns the first observations, see `Episode.reset`."""

    def step(self, handles: Sequence[EpisodeHandle], actions: Sequence[str]) -> list[Step]:
        """Steps each episode with its action, see `Episode.step`, and counts losses.

        Raises:
            WorldError: as for `CheckedEpisode`.
        """
        steps = self._step(handles, actions)
        for step in steps:
            if step.info.get("lost") in self.losses:
                self.losses[step.info["lost"]] += 1
        return steps

    @abc.abstractmethod
    def _step(self, handles: Sequence[EpisodeHandle], actions: Sequence[str]) -> list[Step]:
        """Steps each episode without counting losses; `Step.info["lost"]` is the reason where an answer was lost."""

    @abc.abstractmethod
    def demonstrate(self, handles: Sequence[EpisodeHandle]) -> list[str | None]:
        """Returns each episode's demonstrated action, see `Episode.demonstrate`; None also where an episode is lost."""


class InlineExecutor(EpisodeExecutor):
    """Plays episodes in this process, one after another.

    place: where third-party scorers run; by default this process, with no limit on time or memory.
    """

    def __init__(self, place: ScorerPlace = IN_PROCESS) -> None:
        super().__init__()
        self.place = place

    def open(self, world: Tasks, tasks: Sequence[Task]) -> list[Episode]:
        return [new_episode(world, task) for task in tasks]

    def reset(self, handles: Sequence[Episode]) -> list[str]:
        return [handle.reset() for handle in handles]

    def _step(self, handles: Sequence[Episode], actions: Sequence[str]) -> list[Step]:
        if len(handles) != len(actions):
            raise ValueError(f"step: {len(handles)} episodes and {len(actions)} actions")
        with judged_in(self.place):
            return step_together(handles, actions)

    def demonstrate(self, handles: Sequence[Episode]) -> list[str | None]:
        return [handle.demonstrate() for handle in handles]


class ScoringProcessExecutor(InlineExecutor):
    """An `InlineExecutor` with third-party scorers in worker processes, see `ScorerPool`. A world without such a scorer
    starts no worker."""

    def __init__(self, workers: int = 2, timeout: float = 10.0, memory: float = 1.0) -> None:
        super().__init__(pool(workers, timeout, memory))


@dataclasses.dataclass(eq=False)
class PendingEpisode:
    """An episode that may be given up.

    lost: True once it was given up.
    why: the reason under which its loss is counted.
    """

    task: Task
    lost: bool = False
    why: str = "timeout"


class AsyncExecutor(EpisodeExecutor):
    """Base of executors that run calls concurrently, each with a time limit."""

    @abc.abstractmethod
    def call(self, handles: Sequence[Any], name: str, arguments: Sequence[tuple[str, ...]]) -> list[Any]:
        """Calls method `name` of each episode with its arguments and returns the results; `LOST` where an episode is
        given up."""

    def reset(self, handles: Sequence[PendingEpisode]) -> list[str]:
        return [
            handle.task.prompt if result is LOST else result
            for handle, result in zip(handles, self._call_all(handles, "reset", [()] * len(handles)), strict=True)
        ]

    def _step(self, handles: Sequence[PendingEpisode], actions: Sequence[str]) -> list[Step]:
        return self._call_all(handles, "step", [(action,) for action in actions])

    def demonstrate(self, handles: Sequence[PendingEpisode]) -> list[str | None]:
        return [None if x is LOST else x for x in self._call_all(handles, "demonstrate", [()] * len(handles))]

    def _call_all(
        self, handles: Sequence[PendingEpisode], name: str, arguments: Sequence[tuple[str, ...]]
    ) -> list[Any]:
        if len(handles) != len(arguments):
            raise ValueError(f"{name}: {len(handles)} episodes and {len(arguments)} actions")
        alive = [i for i, handle in enumerate(handles) if not handle.lost]
        answers = [LOST] * len(handles)
        for i, result in zip(
            alive, self.call([handles[i] for i in alive], name, [arguments[i] for i in alive]), strict=True
        ):
            answers[i] = result
            handles[i].lost = result is LOST
            if result is LOST:
                self.losses[handles[i].why] += 1
        return answers


@dataclasses.dataclass(eq=False)
class ThreadEpisode(PendingEpisode):
    episode: Episode | None = None


class ThreadExecutor(AsyncExecutor):
    """Plays episodes in this process with up to `workers` concurrent calls, each in a thread.

    Waiting overlaps; computation in Python does not become faster. Calls of one episode never overlap, and may come
    from different threads. A thread that hangs cannot be ended: it is abandoned, and another one replaces it. Answers
    to episodes that are scored together (`OneAnswer.together`) are one call: all of them are lost if it exceeds the
    limit, except that of coroutines in it only the late ones are lost.

    workers: the most concurrent calls.
    timeout: seconds that a call may take, None for no limit.
    """

    def __init__(self, workers: int, timeout: float | None = None) -> None:
        super().__init__()
        self.workers, self.timeout = workers, timeout

    def open(self, world: Tasks, tasks: Sequence[Task]) -> list[ThreadEpisode]:
        return [ThreadEpisode(task, episode=new_episode(world, task)) for task in tasks]

    def call(self, handles: Sequence[ThreadEpisode], name: str, arguments: Sequence[tuple[str, ...]]) -> list[Any]:
        episodes: list[Any] = [handle.episode for handle in handles]
        if name == "step":
            return self._steps(episodes, [action for (action,) in arguments])
        calls = [
            PendingCall(0, in_thread(getattr(episode, name), *args), self.timeout)
            for episode, args in zip(episodes, arguments, strict=True)
        ]
        return [LOST if done is None else done.result() for done in overlapped(calls, {0: self.workers})]

    def _steps(self, episodes: Sequence[Any], actions: Sequence[str]) -> list[Step]:
        shared = [getattr(episode, "together", None) for episode in episodes]
        parts: dict[Hashable, list[int]] = {}
        for i, key in enumerate(shared):
            parts.setdefault(i if key is None else (key,), []).append(i)
        calls = []
        for places in parts.values():
            grace = 0.0 if shared[places[0]] is None else GRACE
            args = [episodes[i] for i in places], [actions[i] for i in places]
            begin = in_thread(limited(self.timeout, step_together), *args)
            calls.append(PendingCall(0, begin, None if self.timeout is None else self.timeout + grace))
        steps = [LOST] * len(episodes)
        for places, done in zip(parts.values(), overlapped(calls, {0: self.workers}), strict=True):
            if done is not None:
                for i, step in zip(places, done.result(), strict=True):
                    steps[i] = step
        return steps


@dataclasses.dataclass
class PendingCall:
    """A call to wait for.

    lane: calls of the same lane share its concurrency limit.
    begin: starts the call.
    seconds: time limit from its start, None for no limit.
    late: called when the time limit is exceeded.
    """

    lane: Hashable
    begin: Callable[[], Future[Any]]
    seconds: float | None
    late: Callable[[], None] = lambda: None


def in_thread(function: Callable[..., Any], *arguments: Any) -> Callable[[], Future[Any]]:
    """Returns a function that starts this call in a daemon thread, which does not keep the process alive."""

    def begin() -> Future[Any]:
        future: Future[Any] = Future()

        def work() -> None:
            try:
                future.set_result(function(*arguments))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        return future

    return begin


def overlapped(calls: Sequence[PendingCall], width: Mapping[Hashable, int]) -> list[Future[Any] | None]:
    """Runs the calls, at most width[lane] of a lane at a time; returns each finished future, None where the time limit
    passed."""
    done: list[Future[Any] | None] = [None] * len(calls)
    waiting: dict[Hashable, collections.deque[int]] = {}
    for i, call in enumerate(calls):
        waiting.setdefault(call.lane, collections.deque()).append(i)
    free = {lane: width[lane] for lane in waiting}
    going: dict[Future[Any], tuple[int, float | None]] = {}

    def fill(lane: Hashable) -> None:
        while free[lane] and waiting[lane]:
            i = waiting[lane].popleft()
            seconds = calls[i].seconds
            going[calls[i].begin()] = (i, None if seconds is None else time.monotonic() + seconds)
            free[lane] -= 1

    for lane in waiting:
        fill(lane)
    while going:
        ends = [end for _, end in going.values() if end is not None]
        patience = max(0.0, min(ends) - time.monotonic()) if ends else None
        ready, _ = concurrent.futures.wait(going, patience, concurrent.futures.FIRST_COMPLETED)
        now = time.monotonic()
        over = [future for future, (_, end) in going.items() if future in ready or (end is not None and end <= now)]
        for future in over:
            i, _ = going.pop(future)
            done[i] = future if future in ready else None
            if done[i] is None:
                calls[i].late()
            free[calls[i].lane] += 1
        for lane in {calls[i].lane for i in range(len(calls)) if waiting[calls[i].lane]}:
            fill(lane)
    return done


class ExecutorSpec(Config):
    """Settings of one kind of executor."""

    @abc.abstractmethod
    def build(self, makers: Sequence[tuple[Tasks, Maker]]) -> EpisodeExecutor:
        """Returns the executor.

        makers: the worlds, each with a function that rebuilds its tasks in another process.

        Raises:
            ConfigError: a package is missing, or no worker is available.
        """


class ScoringProcessExecutorSpec(ExecutorSpec):
    """Episodes run in the learner's process, and third-party scorers in worker processes, see `ScorerPool`.

    workers: number of worker processes.
    timeout: seconds that a worker may take to score an answer.
    memory: GB of memory that a worker may use to score an answer.
    """

    where: Literal["processes"] = "processes"
    workers: int = pydantic.Field(default=2, ge=1, le=256)
    timeout: float = pydantic.Field(default=10.0, gt=0, allow_inf_nan=False)
    memory: float = pydantic.Field(default=1.0, gt=0, le=1e6)

    def build(self, makers: Sequence[tuple[Tasks, Maker]]) -> EpisodeExecutor:
        executor = ScoringProcessExecutor(self.workers, self.timeout, self.memory)
        pool(self.workers, self.timeout, self.memory).prepare([one for world, _ in makers for one in scorers_of(world)])
        return executor


class InlineExecutorSpec(ExecutorSpec):
    """Episodes and third-party scorers run in the learner's process, one after another, with no limit on the time and
    memory that a model's answer takes there."""

    where: Literal["here"] = "here"

    def build(self, makers: Sequence[tuple[Tasks, Maker]]) -> EpisodeExecutor:
        return InlineExecutor()


class ThreadExecutorSpec(ExecutorSpec):
    """Episodes run in threads of the learner's process, see `ThreadExecutor`.

    workers: number of threads, and so of concurrent episodes.
    timeout: seconds after which an episode's call is given up, None for never.
    """

    where: Literal["threads"] = "threads"
    workers: pydantic.PositiveInt = 8
    timeout: float | None = pydantic.Field(default=60.0, gt=0)

    def build(self, makers: Sequence[tuple[Tasks, Maker]]) -> EpisodeExecutor:
        return ThreadExecutor(self.workers, self.timeout)
