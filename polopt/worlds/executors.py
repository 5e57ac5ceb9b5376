"""Where episodes are played: here, with scorers in processes beside it, or, where they wait, beside each other."""

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

# What `open` gave for one episode: only the grounds that gave it can read it.
Play = Any
# Makes a world's tasks again, in another process.
Maker = Callable[[], Tasks]

# Seconds by which a call for many answers may take longer than one for one: those that it gives up are sorted out then.
GRACE = 1.0
# Why an episode or an answer is lost: it took longer than its time limit, or more memory than its limit; what judged it
# died; played again, it went otherwise.
REASONS = ("timeout", "memory", "died", "differs")


class EpisodeExecutor(abc.ABC):
    """Plays episodes, a batch of calls at a time; answers come in the order of the calls, whoever was first.

    losses: episodes so far that were given up, and answers that their scorers lost, by reason (`REASONS`). An episode
    that is given up is truncated: the step that it was lost in pays nothing. One that is lost as it opens is read from
    its task's prompt, and truncated at its first step. An answer whose scorer ran into a limit is worth 0 there, as a
    wrong one is. again: episodes so far that were played again, because what played them had gone. cut: episodes so far
    that were not over after the last turn that their world declares, and were truncated there. full: episodes so far
    that were truncated because the model's context has no place for more.
    """

    def __init__(self) -> None:
        self.losses = dict.fromkeys(REASONS, 0)
        self.again, self.cut, self.full = 0, 0, 0

    @property
    def lost(self) -> int:
        """The losses of every reason."""
        return sum(self.losses.values())

    @property
    def counts(self) -> dict[str, int]:
        """`lost`, `again`, `cut` and `full` by name, and the losses of each reason as `lost/timeout`."""
        plain = {"lost": self.lost, "again": self.again, "cut": self.cut, "full": self.full}
        return plain | {f"lost/{why}": n for why, n in self.losses.items()}

    def count(self, counts: Mapping[str, float]) -> None:
        """Add the counts of other grounds to these."""
        for name in ("again", "cut", "full"):
            setattr(self, name, getattr(self, name) + int(counts[name]))
        for why in REASONS:
            self.losses[why] += int(counts[f"lost/{why}"])

    def count_cut(self, task: Task, turns: int) -> None:
        """Count an episode that was not over after its world's `turns`; the first gets a warning."""
        if not self.cut:
            warnings.warn(
                f"task {task.id}: its episode was not over after the {turns} turns that the world declares, and was "
                "truncated there; let step() end it, or raise turns (all of them are counted in episodes/cut)",
                PoloptWarning,
                stacklevel=2,
            )
        self.cut += 1

    def count_full(self, task: Task, context: int) -> None:
        """Count an episode that filled the model's context; the first gets a warning."""
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
    def open(self, world: Tasks, tasks: Sequence[Task]) -> list[Play]:
        """One play of each of a world's tasks, not begun."""

    @abc.abstractmethod
    def reset(self, plays: Sequence[Play]) -> list[str]:
        """As `Episode.reset`, of each."""

    def step(self, plays: Sequence[Play], actions: Sequence[str]) -> list[Step]:
        """As `Episode.step`, of each.

        Raises:
            WorldError: as `CheckedEpisode`.
        """
        steps = self._step(plays, actions)
        for step in steps:
            if step.info.get("lost") in self.losses:
                self.losses[step.info["lost"]] += 1
        return steps

    @abc.abstractmethod
    def _step(self, plays: Sequence[Play], actions: Sequence[str]) -> list[Step]:
        """As `step`, uncounted: `Step.info["lost"]` is the reason where a scorer lost the answer."""

    @abc.abstractmethod
    def demonstrate(self, plays: Sequence[Play]) -> list[str | None]:
        """As `Episode.demonstrate`, of each; None also where the episode is lost."""


class InlineExecutor(EpisodeExecutor):
    """In this process, one after another. place: where the scorers that are not polopt's own judge; this process, with
    no limit on time or memory."""

    def __init__(self, place: ScorerPlace = IN_PROCESS) -> None:
        super().__init__()
        self.place = place

    def open(self, world: Tasks, tasks: Sequence[Task]) -> list[Episode]:
        return [new_episode(world, task) for task in tasks]

    def reset(self, plays: Sequence[Episode]) -> list[str]:
        return [play.reset() for play in plays]

    def _step(self, plays: Sequence[Episode], actions: Sequence[str]) -> list[Step]:
        if len(plays) != len(actions):
            raise ValueError(f"step: {len(plays)} plays and {len(actions)} actions")
        with judged_in(self.place):
            return step_together(plays, actions)

    def demonstrate(self, plays: Sequence[Episode]) -> list[str | None]:
        return [play.demonstrate() for play in plays]


class ScoringProcessExecutor(InlineExecutor):
    """As `InlineExecutor`, with the scorers that are not polopt's own in worker processes, see `ScorerPool`. Worlds
    without such a scorer begin none."""

    def __init__(self, workers: int = 2, timeout: float = 10.0, memory: float = 1.0) -> None:
        super().__init__(pool(workers, timeout, memory))


@dataclasses.dataclass(eq=False)
class PendingEpisode:
    """An episode that may be given up. lost: it was. why: the reason that counts if it is."""

    task: Task
    lost: bool = False
    why: str = "timeout"


class AsyncExecutor(EpisodeExecutor):
    """Grounds whose calls are under way beside each other, each with a time limit."""

    @abc.abstractmethod
    def call(self, plays: Sequence[Any], name: str, arguments: Sequence[tuple[str, ...]]) -> list[Any]:
        """What each play answers to its call; `LOST` where it is given up."""

    def reset(self, plays: Sequence[PendingEpisode]) -> list[str]:
        return [
            play.task.prompt if said is LOST else said
            for play, said in zip(plays, self._ask(plays, "reset", [()] * len(plays)), strict=True)
        ]

    def _step(self, plays: Sequence[PendingEpisode], actions: Sequence[str]) -> list[Step]:
        return self._ask(plays, "step", [(action,) for action in actions])

    def demonstrate(self, plays: Sequence[PendingEpisode]) -> list[str | None]:
        return [None if x is LOST else x for x in self._ask(plays, "demonstrate", [()] * len(plays))]

    def _ask(self, plays: Sequence[PendingEpisode], name: str, arguments: Sequence[tuple[str, ...]]) -> list[Any]:
        if len(plays) != len(arguments):
            raise ValueError(f"{name}: {len(plays)} plays and {len(arguments)} actions")
        alive = [i for i, play in enumerate(plays) if not play.lost]
        answers = [LOST] * len(plays)
        for i, said in zip(
            alive, self.call([plays[i] for i in alive], name, [arguments[i] for i in alive]), strict=True
        ):
            answers[i] = said
            plays[i].lost = said is LOST
            if said is LOST:
                self.losses[plays[i].why] += 1
        return answers


@dataclasses.dataclass(eq=False)
class ThreadEpisode(PendingEpisode):
    episode: Episode | None = None


class ThreadExecutor(AsyncExecutor):
    """In this process, `workers` calls at a time, each in a thread.

    They wait beside each other; what computes in Python does not become faster. Calls of one episode never overlap, and
    may come from different threads. timeout: seconds that a call may take, None for any time. A thread that hangs
    cannot be ended: it is left alone, and another takes its place. Answers to episodes that are judged together
    (`OneAnswer.together`) are one call: all are lost where it takes longer, and of coroutines in it only those that do.
    """

    def __init__(self, workers: int, timeout: float | None = None) -> None:
        super().__init__()
        self.workers, self.timeout = workers, timeout

    def open(self, world: Tasks, tasks: Sequence[Task]) -> list[ThreadEpisode]:
        return [ThreadEpisode(task, episode=new_episode(world, task)) for task in tasks]

    def call(self, plays: Sequence[ThreadEpisode], name: str, arguments: Sequence[tuple[str, ...]]) -> list[Any]:
        episodes: list[Any] = [play.episode for play in plays]
        if name == "step":
            return self._steps(episodes, [action for (action,) in arguments])
        calls = [
            PendingCall(0, in_thread(getattr(episode, name), *given), self.timeout)
            for episode, given in zip(episodes, arguments, strict=True)
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
            given = [episodes[i] for i in places], [actions[i] for i in places]
            begin = in_thread(limited(self.timeout, step_together), *given)
            calls.append(PendingCall(0, begin, None if self.timeout is None else self.timeout + grace))
        steps = [LOST] * len(episodes)
        for places, done in zip(parts.values(), overlapped(calls, {0: self.workers}), strict=True):
            if done is not None:
                for i, step in zip(places, done.result(), strict=True):
                    steps[i] = step
        return steps


@dataclasses.dataclass
class PendingCall:
    """Something to wait for. lane: those of one lane share its width. begin: starts it. seconds: that it may take from
    there, None for any time. late: is called when they are over."""

    lane: Hashable
    begin: Callable[[], Future[Any]]
    seconds: float | None
    late: Callable[[], None] = lambda: None


def in_thread(function: Callable[..., Any], *arguments: Any) -> Callable[[], Future[Any]]:
    """What starts this call in a thread of its own, which does not keep the process alive."""

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
    """Every call when it is done, None where it took too long. At most width[lane] of a lane are under way."""
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
    """Settings of one kind of grounds."""

    @abc.abstractmethod
    def build(self, makers: Sequence[tuple[Tasks, Maker]]) -> EpisodeExecutor:
        """The grounds. makers: how each of these worlds is made again elsewhere.

        Raises:
            ConfigError: a package is missing, or nobody is there who could play.
        """


class ScoringProcessExecutorSpec(ExecutorSpec):
    """Worlds in the learner's process, scorers that are not polopt's own in processes beside it, see `ScorerPool`.

    workers: how many such processes there are.
    timeout: seconds that one may take over an answer.
    memory: GB that it may take for it.
    """

    where: Literal["processes"] = "processes"
    workers: int = pydantic.Field(default=2, ge=1, le=256)
    timeout: float = pydantic.Field(default=10.0, gt=0, allow_inf_nan=False)
    memory: float = pydantic.Field(default=1.0, gt=0, le=1e6)

    def build(self, makers: Sequence[tuple[Tasks, Maker]]) -> EpisodeExecutor:
        grounds = ScoringProcessExecutor(self.workers, self.timeout, self.memory)
        pool(self.workers, self.timeout, self.memory).prepare([one for world, _ in makers for one in scorers_of(world)])
        return grounds


class InlineExecutorSpec(ExecutorSpec):
    """All in the learner's process, one after another, scorers that are not polopt's own included: with no limit on the
    time and memory that a model's answer takes there."""

    where: Literal["here"] = "here"

    def build(self, makers: Sequence[tuple[Tasks, Maker]]) -> EpisodeExecutor:
        return InlineExecutor()


class ThreadExecutorSpec(ExecutorSpec):
    """In threads of the learner's process, see `ThreadExecutor`.

    workers: threads, and so episodes at once.
    timeout: seconds after which an episode's call is given up, None for never.
    """

    where: Literal["threads"] = "threads"
    workers: pydantic.PositiveInt = 8
    timeout: float | None = pydantic.Field(default=60.0, gt=0)

    def build(self, makers: Sequence[tuple[Tasks, Maker]]) -> EpisodeExecutor:
        return ThreadExecutor(self.workers, self.timeout)
