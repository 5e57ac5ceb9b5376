"""Independent pieces of work, here or all over a Ray cluster; results in the order of the pieces."""

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
    """`map`, or the same over the Ray cluster at an address: a piece on each of its CPUs, with one thread.

    A piece whose process or node is lost is done again, three times at most. What is under way when the block ends is
    stopped.

    Raises:
        ConfigError: there is no cluster.
    """
    if cluster is None:
        yield map
        return
    with connected(cluster) as ray:
        asked: list[deque[Any]] = []

        def spread(function: Callable[[Any], Any], pieces: Iterable[Any]) -> Iterator[Any]:
            task = ray.remote(num_cpus=1, max_retries=RETRIES, scheduling_strategy="SPREAD")(_done)
            left = deque(task.remote(function, piece, os.getcwd(), sys.path) for piece in pieces)
            asked.append(left)
            while left:
                try:
                    found = ray.get(left[0])
                except ray.exceptions.RayTaskError as error:
                    left.popleft()
                    raise error.cause from error
                left.popleft()
                yield found

        try:
            yield spread
        finally:
            # Not what has come: Ray ends this process if it is to cancel what it is just about to complete.
            for result in itertools.chain(*asked):
                ray.cancel(result, force=True)


def _done(function: Callable[[Piece], Result], piece: Piece, place: str, path: Sequence[str]) -> Result:
    at(place, path)
    torch.set_num_threads(1)
    return function(piece)


def at(place: str, path: Sequence[str]) -> None:
    """In a worker: relative paths and modules are those of the process that asks."""
    os.chdir(place)
    sys.path += [other for other in path if other not in sys.path]
