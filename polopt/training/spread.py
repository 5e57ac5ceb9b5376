"""Independent pieces of work, here or all over a Ray cluster; results in the order of the pieces."""

from __future__ import annotations

import contextlib
import os
import sys
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
        asked: list[Any] = []

        def spread(function: Callable[[Any], Any], pieces: Iterable[Any]) -> Iterator[Any]:
            task = ray.remote(num_cpus=1, max_retries=RETRIES, scheduling_strategy="SPREAD")(_done)
            asked.extend(task.remote(function, piece, os.getcwd(), sys.path) for piece in pieces)
            for result in asked:
                try:
                    yield ray.get(result)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from error

        try:
            yield spread
        finally:
            for result in asked:
                ray.cancel(result, force=True)


def _done(function: Callable[[Piece], Result], piece: Piece, place: str, path: Sequence[str]) -> Result:
    at(place, path)
    torch.set_num_threads(1)
    return function(piece)


def at(place: str, path: Sequence[str]) -> None:
    """In a worker: relative paths and modules are those of the process that asks."""
    os.chdir(place)
    sys.path += [other for other in path if other not in sys.path]
