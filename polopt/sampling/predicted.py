"""Task samplers and rollout allocators that use predicted success rates of the policy."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.part import Part
from polopt.sampling.parts import TaskSampler
from polopt.sampling.predictor import InContext, Predictor
from polopt.sampling.source_protocols import PromptSource
from polopt.sampling.success import unaided
from polopt.sampling.task_samplers import foremost, worth
from polopt.sampling.task_table import TaskTable


class UsesPredictor(Part):
    """Predicts the success rate of every task from the policy's recent scores.

    predictor: the predictor.
    context: tasks in the predictor's context, the most recently tried.
    low: the least outcome.
    high: the greatest outcome; a score is the position of a task's mean outcome between low and high, in [0, 1].

    Each task's score at its last unaided trial is stored, in training mode only. `extras["predicted"]` [B] is the rate
    that was predicted for a row's task before its rollouts.
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
        """Returns predicted success rates [M], float64."""
        tried = self.tried.sized(source.size)
        score, batch = tried.column("score"), tried.column("batch")
        # Latest batch first; the tasks of one batch in the order of their numbers.
        latest = batch.argsort(descending=True, stable=True)[: min(self.context, int((batch > 0).sum()))]
        known = source.prompts(latest)
        return self.predictor(known, score[latest], source.prompts(tasks)).double().clamp(0, 1)

    def scores(self, experience: Experience) -> Tensor:
        """Returns outcomes scaled from [low, high] to [0, 1], [B].

        Raises:
            ExperienceError: an outcome is outside of [low, high].
        """
        share = (experience.outcome.double() - self.low) / (self.high - self.low)
        if not ((share >= 0) & (share <= 1)).all():
            raise ExperienceError(
                f"{type(self).__name__} needs outcomes in [{self.low:g}, {self.high:g}], found "
                f"{float(experience.outcome.min()):g} to {float(experience.outcome.max()):g}; set low and high to the "
                "least and the greatest outcome of the environment"
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
    """Selects, among `of` times as many next tasks, those of the highest score at their predicted success rate p:

        "gain": p (1 - p)^2, highest at 1/3;    "variance": p (1 - p), highest at 1/2.

    Ties are in random order. With of=1 this is `UniformTasks`. A task that is passed over returns with the next
    shuffle. Source: V0, arXiv:2602.03584, for the prediction; the score is that of arXiv:2511.18902.
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


def noted(batch: Experience, rate: Tensor) -> Experience:
    """Returns the batch with each row's predicted success rate, `extras["predicted"]`."""
    return batch.replace(extras={"predicted": rate.to(batch.device)[batch.group]})
