"""Where answers are judged: in worker processes, unless somebody chose this one."""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Iterator, Sequence
from typing import Protocol

from polopt.worlds.scoring.plain import key_of
from polopt.worlds.scoring.pool import ScorerPool
from polopt.worlds.scoring.program import judge
from polopt.worlds.scoring.scorers import Scorer, build
from polopt.worlds.scoring.verdict import Request, Verdict


class ScorerPlace(Protocol):
    def judge(self, requests: Sequence[Request]) -> list[Verdict]:
        """A verdict on each."""


class InProcess:
    """Judges answers in this process, with no limit on time or memory."""

    def __init__(self) -> None:
        self._scorers: dict[bytes, Scorer] = {}

    def judge(self, requests: Sequence[Request]) -> list[Verdict]:
        return [Verdict(**judge(self._scorer(one), one.answer, one.row)) for one in requests]

    def _scorer(self, request: Request) -> Scorer:
        key = key_of(request.scorer)
        if key not in self._scorers:
            self._scorers[key] = build(request.scorer)
        return self._scorers[key]


IN_PROCESS = InProcess()
_place: contextvars.ContextVar[ScorerPlace | None] = contextvars.ContextVar("place of scorers", default=None)


@functools.cache
def pool(workers: int = 2, timeout: float = 10.0, memory: float = 1.0) -> ScorerPool:
    """The pool with these settings, shared by all who ask for it."""
    return ScorerPool(workers, timeout, memory)


@contextlib.contextmanager
def judged_in(place: ScorerPlace) -> Iterator[None]:
    """Inside, in this thread, answers are judged there."""
    token = _place.set(place)
    try:
        yield
    finally:
        _place.reset(token)


def verdicts(requests: Sequence[Request]) -> list[Verdict]:
    """A verdict on each, from the place in force; worker processes with the default limits if none is."""
    place = _place.get()
    return (pool() if place is None else place).judge(requests)
