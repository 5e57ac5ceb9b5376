"""The place where answers are scored: worker processes, unless `judged_in` sets another place."""

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
        """Returns a verdict on each request."""


class InProcess:
    """Scores answers in this process, with no limit on time or memory."""

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
    """Returns the pool with these settings, one shared instance for each combination."""
    return ScorerPool(workers, timeout, memory)


@contextlib.contextmanager
def judged_in(place: ScorerPlace) -> Iterator[None]:
    """Scores answers at `place` inside the context, in this thread."""
    token = _place.set(place)
    try:
        yield
    finally:
        _place.reset(token)


def verdicts(requests: Sequence[Request]) -> list[Verdict]:
    """Returns a verdict on each request, from the current place; by default worker processes with default limits."""
    place = _place.get()
    return (pool() if place is None else place).judge(requests)
