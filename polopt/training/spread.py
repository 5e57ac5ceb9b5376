"""A parallel `map` over independent pieces of work, here or on a Ray cluster; results in the order of the pieces."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import torch

from polopt.training.cluster.address import connected

Piece = TypeVar("Piece")
Result = TypeVar("Result")
# spread(function, pieces) gives function(piece) of each, as `map` does.
Spread = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]

# Other processes that may try a piece when one is lost.
RETRIES = 3


@contextlib.contextmanager
def spread_over(cluster: str | None) -> Iterator[Spread]:
    """Yields `map`, or its counterpart on the Ray cluster at an address: a piece on each of its CPUs, with one thread.

    A piece whose process or node is lost is done again, three times at most. Work under way when the block ends is
    stopped.

    Raises:
        ConfigError: there is no cluster.
    """
    if cluster is None:
        yield map
        return
    with connected(cluster) as ray:
        submitted: list[deque[Any]] = []

        def spread(function: Callable[[Any], Any], pieces: Iterable[Any]) -> Iterator[Any]:
            task = ray.remote(num_cpus=1, max_retries=RETRIES, scheduling_strategy="SPREAD")(_done)
            pending = deque(task.remote(function, piece, os.getcwd(), sys.path) for piece in pieces)
            submitted.append(pending)
            while pending:
                try:
                    found = ray.get(pending[0])
                except ray.exceptions.RayTaskError as error:
                    pending.popleft()
                    raise error.cause from error
                pending.popleft()
                yield found

        try:
            yield spread
        finally:
            # Not finished results: Ray ends this process if it cancels one that is about to complete.
            for result in itertools.chain(*submitted):
                ray.cancel(result, force=True)


def _done(function: Callable[[Piece], Result], piece: Piece, place: str, path: Sequence[str]) -> Result:
    at(place, path)
    torch.set_num_threads(1)
    return function(piece)


def at(place: str, path: Sequence[str]) -> None:
    """Sets a worker's working directory, and adds the modules' paths, to those of the process that started it."""
    os.chdir(place)
    sys.path += [other for other in path if other not in sys.path]
