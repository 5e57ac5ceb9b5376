"""The rollout workers of a recipe, from the address of a cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from polopt.config import ConfigError
from polopt.training.cluster.address import connected
from polopt.training.cluster.worker_pool import WorkerPool
from polopt.training.language_recipe import LanguageRecipe
from polopt.training.process_group import ProcessGroup


@contextlib.contextmanager
def worker_pool_of(
    recipe: LanguageRecipe, address: str | None, team: ProcessGroup, domain: Callable[[LanguageRecipe], Any]
) -> Iterator[WorkerPool | None]:
    """Opens the recipe's pool of workers on the cluster at an address, for the length of the block; None for a recipe
    without a cluster. Of several learner processes, the main one alone has the pool. domain: as `WorkerPool`.

    Raises:
        ConfigError: the recipe is for a cluster and no address is given, or the other way round; Ray is not there; or
            nothing answers at the address.
    """
    if recipe.cluster is None:
        if address is not None:
            raise ConfigError(
                "this run was begun without a cluster, and its rollouts would be others on one; continue it without "
                "--cluster, or begin a new run with it"
            )
        yield None
        return
    if address is None:
        raise ConfigError(
            "the recipe deals its rollouts to the workers of a cluster; name it, as in --cluster auto, --cluster local "
            "or --cluster HOST:PORT, or set cluster to null"
        )
    if not team.is_main:
        yield None  # the main process broadcasts its batches
        return
    with connected(address):
        worker_pool = WorkerPool(recipe, domain)
        try:
            yield worker_pool
        finally:
            worker_pool.close()
