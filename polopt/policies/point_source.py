"""A source of experience of generative policies: points that the policy makes, or that are given."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Generator, Tensor

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.policies.flow import FlowPolicy
from polopt.sampling.parts import RolloutRequest
from polopt.support import Density

# reward(points [B, D], context [B]) -> [B]
PointReward = Callable[[Tensor, Tensor], Tensor]


class PointSource:
    """A source of batches of points of a flow policy; a task is a context.

    points: [N, D] given ones, with their context [N] and score [N]: what `demonstrate`, `pairs` and `rated` return. Of
    `demonstrate` it is all of them. reward: of the points that the policy makes. rows: of one optimiser batch. draws:
    columns of a batch, T: how often each point is noised. The noise and the levels, uniform in [0, 1], are the same in
    all rows of a group, so that a comparison of two rows has less variance. generator: of all draws.
    """

    def __init__(
        self,
        policy: FlowPolicy,
        reward: PointReward,
        *,
        points: Tensor,
        context: Tensor,
        score: Tensor,
        rows: int,
        generator: Generator,
        draws: int = 4,
    ) -> None:
        self.policy, self.reward, self.rows, self.generator, self.draws = policy, reward, rows, generator, draws
        self.points, self.context, self.score = points, context, score
        self.size = policy.contexts
        self._orders: dict[str, list[int]] = {"tasks": [], "points": [], "pairs": []}
        self._compared = _compared(context, score)
        self._sampled, self._seconds = 0, 0.0

    def refresh(self) -> None:
        """Does nothing, since the source stores nothing of the policy."""

    def take(self, count: int) -> Tensor:
        """Returns the numbers of the next contexts, [count]: in random order, each once before any repeats."""
        return self._next("tasks", self.size, count)

    def rollout(self, request: RolloutRequest) -> Experience:
        """Has the policy make the points of a request; their rollout_logp is on fresh draws of noise and level."""
        begun = time.perf_counter()
        context = request.tasks[request.group]
        points = self.policy.sample(context, self.generator)
        outcome = self.reward(points, context.to(points.device)).to(points)
        batch = self.noised_batch(points, context, outcome, request.group)
        batch = batch.replace(rollout_logp=self.evaluate(batch).logp)
        self._sampled += len(points)
        self._seconds += time.perf_counter() - begun
        return batch

    def demonstrate(self, rows: int) -> Experience:
        """Returns the next given points, to be imitated."""
        places = self._next("points", len(self.points), rows)
        return self._given(places, torch.ones(rows), torch.arange(rows))

    def pairs(self, rows: int, tasks: Tensor | None = None) -> Experience:
        """Returns the next pairs of given points: of a context one with the highest score, and one with a lower one.

        tasks: their contexts, in place of the next ones.

        Raises:
            ValueError: no context has points of different scores.
        """
        contexts = sorted(self._compared)
        if not contexts:
            raise ValueError("PointSource.pairs: no context has given points of different scores")
        if tasks is None:
            tasks = torch.tensor([contexts[i] for i in self._next("pairs", len(contexts), max(1, rows // 2)).tolist()])
        places = torch.stack([self._pair(int(task)) for task in tasks]).flatten()
        return self._given(places, self.score[places], torch.arange(len(tasks)).repeat_interleave(2))

    def rated(self, rows: int, *, mismatched: bool = False) -> Experience:
        """Returns the next given points with their scores.

        mismatched: as many rows follow, in which each point has the context of another one.
        """
        places = self._next("points", len(self.points), rows)
        batch = self._given(places, self.score[places], torch.arange(rows))
        if not mismatched:
            return batch
        others = self._given(places.roll(1), torch.zeros(rows), torch.arange(rows), self.context[places])
        flags = [torch.zeros(rows, dtype=torch.bool), torch.ones(rows, dtype=torch.bool)]
        marked = [b.replace(extras={"mismatched": f.to(b.device)}) for b, f in zip((batch, others), flags, strict=True)]
        return Experience.join(marked)

    def weights(self) -> Tensor:
        """Returns the policy's parameters as one vector, [P]."""
        return self.policy.weights()

    @contextlib.contextmanager
    def using(self, weights: Tensor) -> Iterator[None]:
        """Samples and evaluates with other parameters [P] inside of a `with` statement."""
        with self.policy.using(weights):
            yield

    @torch.no_grad()
    def evaluate(self, experience: Experience, needs: frozenset[str] = frozenset()) -> Evaluation:
        """Evaluates a batch under the current policy, without gradient."""
        return self.policy.evaluate(experience, needs)

    def noised_batch(self, points: Tensor, context: Tensor, outcome: Tensor, group: Tensor) -> Experience:
        """Returns a batch of these points with new draws of noise and level, common to the rows of each group."""
        device, T = self.policy.device, self.draws
        index, size = group.unique(return_inverse=True)[1], int(group.max()) + 1 if len(group) else 0
        ways: dict[str, Any] = {"generator": self.generator, "device": self.generator.device}
        noise, level = torch.randn(size, T, points.shape[1], **ways), torch.rand(size, T, **ways)
        extras = {
            "point": points,
            "context": context,
            "index": context,
            "noise": noise[index],
            "noise_level": level[index],
        }
        rows = len(points)
        return Experience(
            mask=torch.ones(rows, T, dtype=torch.bool),
            outcome=outcome,
            reward=outcome,
            terminated=torch.ones(rows, dtype=torch.bool),
            truncated=torch.zeros(rows, dtype=torch.bool),
            group=group,
            support=Density(),
            horizon=T,
            extras=extras,
        ).to(device)

    def _given(self, places: Tensor, outcome: Tensor, group: Tensor, context: Tensor | None = None) -> Experience:
        points = self.points[places]
        context = self.context[places] if context is None else context
        return self.noised_batch(points, context, outcome.to(points), group)

    def _pair(self, task: int) -> Tensor:
        """Returns the places of a point of the highest score of a context and of one of a lower score, [2]."""
        best, rest = self._compared[task]
        draw = torch.rand(2, generator=self.generator, device=self.generator.device).tolist()
        return torch.stack([found[int(u * len(found))] for u, found in zip(draw, (best, rest), strict=True)])

    def _next(self, order: str, size: int, count: int) -> Tensor:
        """Returns the next numbers of an order in which each of `size` comes once before any repeats."""
        queue = self._orders[order]
        while len(queue) < count:
            queue += torch.randperm(size, generator=self.generator, device=self.generator.device).tolist()
        self._orders[order] = queue[count:]
        return torch.tensor(queue[:count], dtype=torch.long)

    def usage(self) -> dict[str, float]:
        """Returns the points made and the seconds spent so far."""
        return {"sampled": self._sampled, "seconds/rollout": self._seconds}

    def state(self) -> dict[str, Any]:
        """Returns the position in each order."""
        return {"orders": {name: list(queue) for name, queue in self._orders.items()}}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned."""
        self._orders = {name: list(queue) for name, queue in state["orders"].items()}


def _compared(context: Tensor, score: Tensor) -> dict[int, tuple[Tensor, Tensor]]:
    """Returns the contexts with points of different scores: places of those of the highest, and of the others."""
    found = {}
    for task in context.unique().tolist():
        places = (context == task).nonzero().flatten()
        best = score[places] == score[places].max()
        if not best.all():
            found[int(task)] = places[best], places[~best]
    return found
