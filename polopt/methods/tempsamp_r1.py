"""TempSamp-R1: GRPO with a known solution in every group, and a reward shaped against its dominance."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.credit.parts import Credit
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.objectives import TokenRatio
from polopt.objectives.parts import Ratio
from polopt.rewards import OutcomeReward
from polopt.rewards.parts import Reward
from polopt.sampling import WithSolutions

Way = Literal["shaped", "anchored", "discounted", "raw"]


@method(
    paper=Paper(
        title="TempSamp-R1: Effective Temporal Sampling with Reinforcement Fine-Tuning for Video LLMs",
        authors="Li, Yunheng and others",
        year=2025,
        arxiv="2509.18056",
    ),
    changes="GRPO whose groups hold a known solution too; the reward is bent, so that a perfect row does not make all "
    "others look bad.",
    room="sampling",
    tier="proven",
)
def tempsamp_r1(
    *,
    group: int = 3,
    way: Way = "shaped",
    knee: float = 0.8,
    above: float = 0.01,
    below: float = 1.0,
    factor: float | None = None,
    clip: float = 0.2,
    kl: float = 0.04,
) -> Algorithm:
    """GRPO on groups of `group` rollouts, of outcomes R_i in [0, 1], and the prompt's demonstrated solution G, R_G = 1.
    The advantages are by `way`, z being the z-score over the rows named:

        shaped:      A_i = z(bent(R_i)) over rollouts and G, the paper's choice
        anchored:    A_i = z(R_i) over rollouts alone, and A_G = factor max_i A_i with factor = 1.2
        discounted:  A_i = z(R_i) over rollouts and G, with R_G = factor = 0.8
        raw:         A_i = z(R_i) over rollouts and G, the problem that the others solve

    The objective is GRPO's. The solution has no behaviour policy, so its ratio is 1 with the gradient of the
    score, which is a likelihood of weight A_G. The paper takes one update a batch, where all ratios are 1. The
    reference's KL is taken on the solution as well. The paper's group of 4 (8 for Charades) is 3 (7) rollouts here, as
    `rows` counts them.

    Its rewards are interval overlaps (`lab.demonstrations.interval_iou`), 0 where they are disjoint (its printed
    formula would be negative there), plus a reward for the format, so in [0, 1] before it is bent. Its two phases,
    answers alone and then answers after reasoning, are two stages with tasks of their own. That the discount is a share
    of the highest reward is our reading.

    The solution is that of the task; where that is the bare result, the policy learns to answer with the bare result.

    Anchored, a group without any success learns nothing: all its advantages are 0, the solution's as well.
    """
    relative = RelativeAdvantage(baseline=GroupMean(), scale=GroupStd())
    share = {"anchored": 1.2, "discounted": 0.8}.get(way, 0.0) if factor is None else factor
    changes: dict[str, Any] = {
        "sampling.mix": [WithSolutions(gate=1.0)],
        "credit": AnchoredDemonstrations(credit=relative, factor=share)
        if way == "anchored"
        else IncludeDemonstrations(credit=relative),
        "objective.ratio": RatioExceptDemonstrations(ratio=TokenRatio()),
    }
    if way == "shaped":
        changes["reward"] = BentReward(reward=OutcomeReward(), knee=knee, above=above, below=below)
    if way == "discounted":
        changes["reward"] = DiscountedDemonstrations(reward=OutcomeReward(), factor=share)
    return grpo(group=group, clip=clip, kl=kl).but(changes)


class IncludeDemonstrations(Credit):
    """Another credit that treats a demonstrated row as a row of its group like any other."""

    credit: Credit = RelativeAdvantage()

    judges_demonstrations: ClassVar[bool] = True

    def forward(self, experience: Experience) -> Tensor:
        return self.credit(experience)


class AnchoredDemonstrations(Credit):
    """Another credit, of the rollouts alone; a demonstration gets `factor` times the highest advantage of its group.

    Demonstrations then change no group's mean, and if factor > 1 their advantage exceeds that of every rollout. In a
    group whose rollouts are all equal, all advantages are 0, the demonstration's as well. Source: the advantage
    anchoring of TempSamp-R1, arXiv:2509.18056.
    """

    credit: Credit = RelativeAdvantage()
    factor: float = 1.2

    judges_demonstrations: ClassVar[bool] = True
    reads = frozenset({"group"})

    def setup(self) -> None:
        if self.factor < 0:
            raise ValueError(f"methods.tempsamp_r1.AnchoredDemonstrations: factor must be >= 0, found {self.factor}")

    def forward(self, experience: Experience) -> Tensor:
        demonstrated, mask = experience.is_demonstration, experience.mask
        if demonstrated.all():
            return torch.zeros_like(mask, dtype=experience.precision)
        own = self.credit(experience[~demonstrated])
        advantage = own.new_zeros(mask.shape).index_copy(0, (~demonstrated).nonzero().flatten(), own)
        # The highest advantage of each rollout; -inf for demonstrations, so that they are no group's maximum.
        counts = mask & ~demonstrated[:, None]
        highest = -ops.group_least(torch.where(counts, -advantage, torch.inf).amin(1), experience.group)
        anchor = torch.where(highest > -torch.inf, self.factor * highest, 0)
        return torch.where(demonstrated[:, None], torch.where(mask, anchor[:, None], 0), advantage)


class RatioExceptDemonstrations(Ratio):
    """Another ratio, and 1 on demonstrated rows, for which there is no behaviour policy: exp(logp - sg(logp)), with the
    gradient of the score, inside every trust region. For credits with `Credit.judges_demonstrations`."""

    ratio: Ratio = TokenRatio()

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        own = evaluation.logp - evaluation.logp.detach()
        return torch.where(experience.is_demonstration[:, None], own, self.ratio(experience, evaluation))


def bent(reward: Tensor, knee: float = 0.8, above: float = 0.01, below: float = 1.0) -> Tensor:
    """Transforms a reward in [0, 1], flat above the knee and increasingly steep below it:
        R >= knee:  knee + above ln(1 + R - knee);        R < knee:  knee - (e^(below (knee - R)) - 1) / (e^below - 1).

    The transform is increasing and continuous. At the knee its left slope is below / (e^below - 1), its right slope
    `above`. Source: TempSamp-R1, arXiv:2509.18056.
    """
    over = (reward - knee).clamp(min=0)
    return knee + above * over.log1p() - (below * (knee - reward).clamp(min=0)).expm1() / math.expm1(below)


class BentReward(Reward):
    """Another reward, transformed by `bent`.

    Among rewards above the knee hardly any difference is left, so that a perfect row no longer pushes good ones below
    their group's mean; below the knee, differences grow. Where all of a group's rewards are above the knee the
    transform is nearly linear and changes no z-score. Source: TempSamp-R1, arXiv:2509.18056.
    """

    reward: Reward = OutcomeReward()
    knee: float = 0.8
    above: float = 0.01
    below: float = 1.0

    def setup(self) -> None:
        if not 0 <= self.knee <= 1 or self.above <= 0 or self.below <= 0:
            raise ValueError(
                "methods.tempsamp_r1.BentReward: need knee in [0, 1], above > 0 and below > 0, found "
                f"{self.knee}, {self.above} and {self.below}"
            )

    def forward(self, experience: Experience) -> Tensor:
        return bent(self.reward(experience), self.knee, self.above, self.below)


class DiscountedDemonstrations(Reward):
    """Another reward, multiplied by `factor` on demonstrations.

    For credits that include demonstrations (`Credit.judges_demonstrations`): a solution with a lower reward raises its
    group's mean less. Source: the reward downscaling of TempSamp-R1, arXiv:2509.18056.
    """

    reward: Reward = OutcomeReward()
    factor: float = 0.8

    def forward(self, experience: Experience) -> Tensor:
        reward = self.reward(experience)
        demonstrated = experience.is_demonstration.reshape(-1, *[1] * (reward.ndim - 1))
        return torch.where(demonstrated, self.factor * reward, reward)
