"""Workers without Ray: the same orders, played one after the other in this process."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from polopt.training.cluster.rollout_actor import RolloutActor, WorkerResult, WorkerTask
from polopt.training.cluster.worker_pool import Counts, RequestAbandoned
from polopt.training.language import LanguageDomain
from polopt.training.language_recipe import LanguageRecipe


class HereCrew:
    """As `WorkerPool`. Which worker plays a task is drawn by lot: it must not matter. lose: how many of the tasks are
    played and then lost, so that they are played again."""

    def __init__(self, recipe: LanguageRecipe, lose: float = 0.0) -> None:
        assert recipe.cluster is not None
        self.spec, self.counts, self.lose = recipe.cluster, Counts(), lose
        self.lots = random.Random(0)
        self.versions: dict[int, Tensor] = {}
        self.played: list[tuple[int, int, int]] = []
        self.team = [RolloutActor() for _ in range(self.spec.workers)]
        for worker in self.team:
            worker.prepare(LanguageDomain, recipe.to_yaml(), ".", [], recipe.threads or 1)

    workers = property(lambda self: len(self.team))

    def publish(self, version: int, weights: Tensor) -> None:
        self.versions[version] = weights.clone()

    def weights(self, version: int) -> Tensor:
        return self.versions[version]

    def drop(self, before: int | None = None) -> None:
        for version in [v for v in self.versions if before is None or v < before]:
            del self.versions[version]

    def run(self, orders: Sequence[WorkerTask], stopped: Callable[[], bool] = lambda: False) -> list[WorkerResult]:
        if stopped():
            raise RequestAbandoned
        return [self._play(order) for order in orders]

    def _play(self, order: WorkerTask) -> WorkerResult:
        while True:
            worker: Any = self.lots.choice(self.team)
            answer = worker.work(order, lambda: self.versions[order.version])
            if self.lots.random() >= self.lose:
                self.played.append(order.number)
                return answer
            self.counts.again += 1
