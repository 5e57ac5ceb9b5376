"""A judge's score as the reward."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.features.base import RowMask
from polopt.fields import ExperienceError
from polopt.rewards.judges.parts import Judge
from polopt.rewards.parts import Reward


class JudgedReward(Reward):
    """The judge's score of each row's answer to its task's prompt; for a row of many turns, of its last answer.

    A judge that compares receives the task's solution as the reference. Scores are comparable only for the same prompt
    and the same reference: use group baselines, not batch baselines.

    where: the rows that are judged; the others have reward 0 and are not read. None for all.

    Raises:
        ExperienceError: the judge compares, and a task has no solution.
    """

    tags = frozenset[str]()

    judge: Judge
    where: RowMask | None = None

    reads = frozenset({"extras.task", "extras.answer"})

    @property
    def source_capabilities(self) -> frozenset[str]:  # type: ignore[override]
        """The capabilities that the source of the tasks must have."""
        return frozenset({"demonstrations"}) if self.judge.compares else frozenset()

    def forward(self, experience: Experience) -> Tensor:
        if self.where is None:
            return self._scores(experience)
        found = torch.zeros(len(experience), dtype=experience.precision, device=experience.device)
        rows = self.where(experience)
        if rows.any():
            found[rows] = self._scores(experience[rows])
        return found

    def _scores(self, experience: Experience) -> Tensor:
        tasks, answers = experience.extras["task"], experience.extras["answer"]
        references = [self._solution(task) for task in tasks] if self.judge.compares else None
        found = self.judge([task.prompt for task in tasks], answers, references)
        return found.scores.to(experience.device, experience.precision)

    def _solution(self, task: object) -> str:
        solution = getattr(task, "solution", None)
        if solution is None:
            raise ExperienceError(
                "rewards.JudgedReward: the judge compares with the task's solution, and task "
                f"{getattr(task, 'id', task)!r} "
                "has none; give the tasks solutions, or take a judge that reads the answer alone"
            )
        return solution
