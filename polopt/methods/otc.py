"""OTC: a right answer's reward falls with the tool calls that it made beyond the fewest that were enough."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.features.base import RowFeature, RowMask
from polopt.features.masks import IsCorrect
from polopt.features.rows import RowField
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.rewards import OutcomeReward
from polopt.rewards.parts import Reward
from polopt.sampling.task_table import TaskTable


@method(
    paper=Paper(
        title="OTC: Optimal Tool Calls via Reinforcement Learning",
        authors="Wang, Hongru and Qian, Cheng and Zhong, Wanjun and others",
        year=2025,
        arxiv="2504.14870",
    ),
    changes="GRPO whose reward is multiplied by how few tool calls an answer made, next to the fewest that were right.",
    room="rewards",
    tier="reading",
)
def otc(
    *,
    group: int = 8,
    c: float = 4.0,
    among: Literal["task", "group"] = "task",
    alpha: float = 1.0,
    clip: float = 0.2,
    kl: float = 0.0,
) -> Algorithm:
    """An answer with m tool calls and outcome R has the reward alpha r_tool R, and GRPO's z-score of it, with

        r_tool = 1                          if n = 0 and m = 0
                 cos(pi m / (2 m + c))      if n = 0 and m > 0
                 sin(pi m / (m + n))        if n > 0

    and n the fewest calls of a right answer to the same prompt: 1 at m = n, falling on both sides, and 0 for no call
    where a call was needed. A product, so that a wrong answer never earns by calling less.

    c: smoothing, the paper's is the most calls that are allowed, 4 for search and 3 for code.
    among: "task" the fewest so far in training, the paper's reported setting; "group" those of the row's group.
    alpha: scale of all rewards, which GRPO's z-score takes off again.

    Calls are `extras["signal_calls"]`, which worlds with tools tell, as those of `worlds.tool_environment`. The paper's
    form for PPO, without a group, is `but(reward=CallPricedReward(efficiency=CallCosine()))`. The paper's f is written
    out here: of f = 2 n m / (m + n), sin(pi f / (2 n)) = sin(pi m / (m + n)). Without any right answer n is unknown and
    R = 0; r_tool is 1 then. Fewest calls that were right by luck stay the fewest of their task: see `among`. The first
    form's cosine is confirmed by a review of the paper; the lines with n were read in a transcription, and no code of
    the authors was found.
    """
    efficiency = FewestCalls(c=c, among=among)
    return grpo(group=group, clip=clip, kl=kl).but(reward=CallPricedReward(efficiency=efficiency, weight=alpha))


class CallPricedReward(Reward):
    """weight efficiency R: a reward, of rows or of decisions, times a factor of the row that falls with tool calls."""

    reward: Reward = OutcomeReward()
    efficiency: RowFeature
    weight: float = 1.0

    reads_batch = True

    def forward(self, experience: Experience) -> Tensor:
        reward = self.reward(experience)
        factor = self.weight * self.efficiency(experience).to(reward.dtype)
        return (factor if reward.ndim == 1 else factor[:, None]) * reward


class CallCosine(RowFeature):
    """cos(pi m / (2 m + c)) of a row with m calls: 1 without a call, and towards 0.

    c: smoothing, > 0.
    """

    calls: RowFeature = RowField(name="signal_calls")
    c: float = 4.0

    def setup(self) -> None:
        if not self.c > 0:
            raise ValueError(f"methods.otc.{type(self).__name__}: c must be > 0, found {self.c}")

    def forward(self, experience: Experience) -> Tensor:
        calls = self.calls(experience).double()
        return (math.pi * calls / (2 * calls + self.c)).cos()


class FewestCalls(CallCosine):
    """The efficiency of m calls beside n, the fewest of a right row of the same prompt; see `otc`.

    right: the rows whose calls were enough.
    among: "group" those of the batch's group; "task" also those of earlier batches of the same task, by
        `extras["index"]`, which are kept in training mode.
    """

    calls: RowFeature = RowField(name="signal_calls")
    c: float = 4.0
    right: RowMask = IsCorrect()
    among: Literal["task", "group"] = "task"

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"group"} | ({"extras.index"} if self.among == "task" else set()))

    def setup(self) -> None:
        super().setup()
        self.table = TaskTable(fewest=math.inf)

    def forward(self, experience: Experience) -> Tensor:
        calls = self.calls(experience).double()
        fewest = self._fewest(experience, torch.where(self.right(experience), calls, math.inf))
        known = fewest.isfinite()
        beside = torch.where(known, fewest, 0)
        share = torch.where(known & (beside > 0), calls / (calls + beside).clamp(min=1), 0)
        return torch.where(known, torch.where(beside > 0, (math.pi * share).sin(), super().forward(experience)), 1.0)

    def _fewest(self, experience: Experience, enough: Tensor) -> Tensor:
        """Returns n of each row [B]. enough: its calls where it is right, infinite elsewhere."""
        fewest = ops.group_least(enough, experience.group)
        if self.among == "group" or not len(enough):
            return fewest
        index = experience.extras["index"].long()
        table = self.table.grown(int(index.max()) + 1).column("fewest")
        fewest = torch.minimum(fewest, table[index].to(fewest))
        if self.training:
            table.scatter_reduce_(0, index.to(table.device), fewest.to(table), "amin")
        return fewest
