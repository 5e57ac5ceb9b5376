"""Credit by turn for rows with several answers."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from polopt import ops
from polopt.credit.parts import Baseline, Credit, Scale
from polopt.credit.relative import LeaveOneOut
from polopt.experience import Experience
from polopt.fields import check_shape
from polopt.situation import Situation


class TurnAdvantage(Credit):
    """The row's return from turn k on, relative to that of other rows, on the decisions of turn k:

        A_k = (G_k - baseline(G_k)) / scale(G_k),    G_k = sum_{j >= k} r_j + bonus (paid_k - paid_{k-1})

    r_j is the total reward of turn j's decisions, paid_k the environment's reward for turn k's answer,
    `extras["paid"]`. The bonus rewards a turn for improving on the turn before. It is that turn's alone: an earlier
    turn that had a part in it would be rewarded for failing. Rows without a turn k are not compared in it. baseline
    None is 0, scale None is 1. Source of the bonus: SCoRe, arXiv:2409.12917.
    """

    baseline: Baseline | None = LeaveOneOut()
    scale: Scale | None = None
    bonus: float = 0.0

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"reward", "turn"} | ({"extras.paid"} if self.bonus else set()))

    def cautions(self, situation: Situation) -> Iterator[str]:
        if situation.turns < 2:
            yield (
                "it compares the answers of an episode with each other, and these tasks ask for one; take tasks that "
                "ask more than once, as those of kind second-chance"
            )

    def forward(self, experience: Experience) -> Tensor:
        mask, turn = experience.mask, experience.turn
        reward = ops.per_decision_reward(experience.reward.detach(), mask)
        paid = torch.where(mask, experience.extras["paid"], 0).to(reward.dtype) if self.bonus else None
        advantage = torch.zeros_like(reward)
        for number in torch.unique(turn[mask]).tolist():
            now = mask & (turn == number)
            rows = now.any(1)
            returns = torch.where(turn >= number, reward, 0).sum(1)
            if paid is not None and number > 0:
                before = torch.where(turn == number - 1, paid, 0).sum(1)
                returns = returns + self.bonus * (torch.where(now, paid, 0).sum(1) - before)
            compared, found = experience[rows], returns[rows]
            relative = found
            if self.baseline is not None:
                relative = relative - check_shape(self.baseline(compared, found), found, self.baseline)
            if self.scale is not None:
                unit = check_shape(self.scale(compared, found), found, self.scale)
                relative = torch.where(relative == 0, 0, relative / unit)
            worth = torch.zeros_like(returns).masked_scatter(rows, relative)
            advantage = torch.where(now, worth[:, None], advantage)
        return advantage
