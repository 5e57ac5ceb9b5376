"""Choices and budgets that know, before they buy, how often the policy is likely to succeed."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.part import Part
from polopt.sampling.allocation import allocate
from polopt.sampling.parts import Buy, RolloutAllocator, TaskSampler
from polopt.sampling.predictor import InContext, Predictor
from polopt.sampling.source_protocols import PromptSource
from polopt.sampling.success import unaided
from polopt.sampling.task_samplers import foremost, worth
from polopt.sampling.task_table import TaskTable


class UsesPredictor(Part):
    """A success rate of every task, from a predictor that is shown what the policy scored lately.

    predictor: who predicts. context: how many tasks it is shown, those that were tried last. low, high: the least and
    the greatest outcome; a score is how far between them a task's mean outcome lay. What a task scored when it was last
    tried, without help, is kept for each of them, and moves in training mode only. `extras["predicted"]` [B] is the
    rate that was predicted of a row's task before any of its rollouts.
    """

    predictor: Predictor = InContext()
    context: int = 256
    low: float = 0.0
    high: float = 1.0

    writes = frozenset({"extras.predicted"})
    source_capabilities = frozenset({"prompts"})

    def setup(self) -> None:
        if self.context < 1 or self.low >= self.high:
            raise ValueError(
                f"{type(self).__name__}: need context >= 1 and low < high, found {self.context}, {self.low} and "
                f"{self.high}"
            )
        self.tried = TaskTable(score=0.0, batch=0.0)

    def predict(self, source: PromptSource, tasks: Tensor) -> Tensor:
        """[M] success rates, float64."""
        tried = self.tried.sized(source.size)
        score, batch = tried.column("score"), tried.column("batch")
        # Latest first; of one batch in the order of their numbers.
        latest = batch.argsort(descending=True, stable=True)[: min(self.context, int((batch > 0).sum()))]
        known = source.prompts(latest)
        return self.predictor(known, score[latest], source.prompts(tasks)).double().clamp(0, 1)

    def scores(self, experience: Experience) -> Tensor:
        """[B] outcomes as shares of the way from low to high.

        Raises:
            ExperienceError: an outcome outside of them.
        """
        share = (experience.outcome.double() - self.low) / (self.high - self.low)
        if not ((share >= 0) & (share <= 1)).all():
            raise ExperienceError(
                f"{type(self).__name__} needs outcomes in [{self.low:g}, {self.high:g}], found "
                f"{float(experience.outcome.min()):g} to {float(experience.outcome.max()):g}; set low and high to the "
                "least and the greatest that the world pays"
            )
        return share

    @torch.no_grad()
    def observe(self, experience: Experience) -> None:
        experience = experience[unaided(experience)]
        if not self.training or not len(experience):
            return
        score, batch = self.tried.column("score"), self.tried.column("batch")
        index = experience.extras["index"]
        mean = ops.group_mean(self.scores(experience), index)
        score[index.to(score.device)] = mean.to(score.device)
        batch[index.to(score.device)] = batch.max() + 1


class TopPredicted(UsesPredictor, TaskSampler):
    """Of the `of` times as many tasks that come next, those that promise most at their predicted success rate p:

        "gain": p (1 - p)^2, highest at 1/3;    "variance": p (1 - p), highest at 1/2.

    Level ones: by lot. With of=1 this is `UniformTasks`. A task that is passed over comes again with the next shuffle.
    Source: V0, arXiv:2602.03584, for the prediction; the worth of a task is that of arXiv:2511.18902.
    """

    predictor: Predictor = InContext()
    context: int = 256
    low: float = 0.0
    high: float = 1.0
    of: int = 4
    by: Literal["gain", "variance"] = "gain"

    writes = frozenset()

    def setup(self) -> None:
        super().setup()
        if self.of < 1:
            raise ValueError(f"sampling.TopPredicted: of must be >= 1, found {self.of}")

    def forward(self, source: PromptSource, count: int) -> Tensor:
        tasks = source.take(self.of * count)
        if self.of == 1:
            self.tried.sized(source.size)
            return tasks
        p = self.predict(source, tasks)
        return tasks[foremost(worth(p, self.by), count, source.generator).to(tasks.device)]


class PredictedAllocator(UsesPredictor, RolloutAllocator):
    """Counts between `least` and `most` that add up to `group` a task and are worth the most (`allocate`), by predicted
    success rates: few for tasks that are all but certain either way.

    Source: V0, arXiv:2602.03584; the worth of a count is that of arXiv:2509.25849.
    """

    predictor: Predictor = InContext()
    context: int = 256
    low: float = 0.0
    high: float = 1.0
    least: int = 2
    most: int = 128

    def setup(self) -> None:
        super().setup()
        if not 1 <= self.least <= self.most:
            raise ValueError(
                f"sampling.PredictedAllocator: need 1 <= least <= most, found {self.least} and {self.most}"
            )

    def forward(self, source: PromptSource, tasks: Tensor, group: int, buy: Buy) -> Experience:
        rate = self.predict(source, tasks)
        counts = allocate(rate.cpu(), group * len(tasks), self.least, self.most).to(tasks.device)
        return noted(buy(counts), rate)


class SequentialAllocator(UsesPredictor, RolloutAllocator):
    """`group` rollouts of every task, then one more, again and again, of those where it pays, up to `most`.

    In units in which outcomes go from -1 to 1, k rollouts of mean m beside a prior v leave the error

        MSE(k) = D / (k D + 1),   D = max(0, (m - v)^2 - 1 / k),

    and one more rollout is bought while MSE(k) - MSE(k + 1) > cost. Where the prior is believed, D is 0 and nothing is
    bought; where it is plainly wrong, 1 / (k (k + 1)) decides: with the default cost up to 16. The batch has as many
    rows more than the loop asked for.

    Source: V0.5, arXiv:2603.10848.
    """

    predictor: Predictor = InContext()
    context: int = 256
    low: float = 0.0
    high: float = 1.0
    most: int = 16
    cost: float = 0.0039

    def setup(self) -> None:
        super().setup()
        if self.most < 1 or self.cost < 0:
            raise ValueError(
                f"sampling.SequentialAllocator: need most >= 1 and cost >= 0, found {self.most} and {self.cost}"
            )

    def forward(self, source: PromptSource, tasks: Tensor, group: int, buy: Buy) -> Experience:
        rate = self.predict(source, tasks)
        batch = buy(torch.full_like(tasks, group))
        while (going := self.goes_on(batch, rate)).any():
            batch = Experience.join([batch, buy(going.to(tasks))])
        return noted(batch, rate)

    def goes_on(self, batch: Experience, rate: Tensor) -> Tensor:
        """[M] bool: of which tasks one more rollout pays."""
        group, none = batch.group.to(rate.device), torch.zeros_like(rate)
        count = none.index_add(0, group, torch.ones_like(group, dtype=rate.dtype))
        won = none.index_add(0, group, self.scores(batch).to(rate.device))
        mean = 2 * won / count.clamp(min=1) - 1
        gain = look_ahead(ops.prior_error(mean, 2 * rate - 1, 1 / count.clamp(min=1)), count)
        return (gain > self.cost) & (count > 0) & (count < self.most)


def look_ahead(apart: Tensor, count: Tensor) -> Tensor:
    """MSE(k) - MSE(k + 1) of a mean of k values, of variance 1 each, fused with a prior of squared error D:
    D / (k D + 1) - D / ((k + 1) D + 1)."""
    return apart**2 / ((count * apart + 1) * ((count + 1) * apart + 1))


def noted(batch: Experience, rate: Tensor) -> Experience:
    """The batch with what was predicted of each row's task."""
    return batch.replace(extras={"predicted": rate.to(batch.device)[batch.group]})
