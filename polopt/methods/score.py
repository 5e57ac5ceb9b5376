"""SCoRe: multi-turn RL for self-correction, with a bonus for improvement in the second attempt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit import LeaveOneOut
from polopt.credit.parts import Baseline, Credit, Scale
from polopt.experience import Experience
from polopt.fields import check_shape
from polopt.method import Paper, method
from polopt.methods.rloo import rloo
from polopt.rewards import KLPenalty, Reward, SumOfRewards
from polopt.situation import Situation


@method(
    paper=Paper(
        title="Training Language Models to Self-Correct via Reinforcement Learning",
        authors="Kumar, Aviral and others",
        year=2024,
        arxiv="2409.12917",
    ),
    changes="RLOO by turn: the second attempt's progress is rewarded too; in a stage before, it alone is trained.",
    room="credit",
    tier="proven",
)
def score(*, stage: int = 2, group: int = 4, alpha: float = 10.0, kl: float = 0.01, first_kl: float = 0.1) -> Algorithm:
    """With r1, r2 the environment's rewards of the two attempts, k1 the distance to the reference token by token,

        stage 1:  J = E[ r2 - kl KL - first_kl KL_1 ]
        stage 2:  J = E[ r1 + r2 - kl KL ], with alpha (r2 - r1) more for the decisions of the second attempt

    with KL_1 that of the first attempt, J is maximised by REINFORCE, each turn with its own return to go less the mean
    of the group's other rows. In stage 1 the first attempt stays where it is, so that the second learns to correct it,
    not to copy it. Each stage is a stage of a recipe (`polopt/recipes/score.yaml`); the reference is the policy as its
    stage began, in the paper the base model throughout. Tasks must have two attempts, as in the environment
    second-chance; with one turn this is RLOO.

    The paper's text leaves open whether the first attempt is credited with the bonus of the second. Here it is not:
    its share would be -alpha r1, a penalty on a right first attempt. Given the first attempt r1 is a constant, so that
    the bonus is in expectation 1 + alpha times the second's own reward, with r1 as a baseline. first_kl counts per
    token; on short answers 0.1 is not strong.
    """
    if stage not in (1, 2):
        raise ValueError(f"score: stage must be 1 or 2, found {stage}")
    terms: list[Reward] = [TurnRewards(weights=(0.0, 1.0)) if stage == 1 else TurnRewards(), KLPenalty(coefficient=kl)]
    if stage == 1:
        terms += [KLPenalty(coefficient=first_kl, turn=0)]
    bonus = alpha if stage == 2 else 0.0
    return rloo(group=group).but(
        reward=SumOfRewards(terms=terms), credit=TurnAdvantage(baseline=LeaveOneOut(), bonus=bonus)
    )


class TurnAdvantage(Credit):
    """The row's return from turn k on, relative to that of other rows, on the decisions of turn k:

        A_k = (G_k - baseline(G_k)) / scale(G_k),    G_k = sum_{j >= k} r_j + bonus (paid_k - paid_{k-1})

    r_j is the total reward of turn j's decisions, paid_k the environment's reward for turn k's answer,
    `extras["answer_reward"]`. The bonus rewards a turn for improving on the turn before. It is that turn's alone: an
    earlier turn that had a part in it would be rewarded for failing. Rows without a turn k are not compared in it.
    baseline None is 0, scale None is 1. Source of the bonus: SCoRe, arXiv:2409.12917."""

    baseline: Baseline | None = LeaveOneOut()
    scale: Scale | None = None
    bonus: float = 0.0

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"reward", "turn"} | ({"extras.answer_reward"} if self.bonus else set()))

    def cautions(self, situation: Situation) -> Iterator[str]:
        if situation.turns < 2:
            yield (
                "it compares the answers of an episode with each other, and these tasks have one answer; take tasks "
                "with several, as those of kind second-chance"
            )

    def forward(self, experience: Experience) -> Tensor:
        mask, turn = experience.mask, experience.turn
        reward = ops.per_decision_reward(experience.reward.detach(), mask)
        answer_reward = (
            torch.where(mask, experience.extras["answer_reward"], 0).to(reward.dtype) if self.bonus else None
        )
        advantage = torch.zeros_like(reward)
        for number in torch.unique(turn[mask]).tolist():
            now = mask & (turn == number)
            rows = now.any(1)
            returns = torch.where(turn >= number, reward, 0).sum(1)
            if answer_reward is not None and number > 0:
                before = torch.where(turn == number - 1, answer_reward, 0).sum(1)
                returns = returns + self.bonus * (torch.where(now, answer_reward, 0).sum(1) - before)
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


class TurnRewards(Reward):
    """Reward weight_k times the environment's reward of the answer of turn k, `extras["answer_reward"]`, on its
    last decision.

    weights: one for each turn, the last of them for all further turns; none given means 1 each.
    """

    weights: Sequence[float] = ()

    reads = frozenset({"extras.answer_reward", "turn"})

    def refusals(self, situation: Situation) -> Iterator[str]:
        if self.weights and not any(self.weights[: situation.turns]):
            yield (
                f"it rewards no answer before number {situation.turns + 1} (weights {list(self.weights)}), and "
                f"these tasks have {situation.turns} at most; take tasks with more, as those of kind second-chance"
            )

    def forward(self, experience: Experience) -> Tensor:
        answer_reward = torch.where(experience.mask, experience.extras["answer_reward"], 0)
        if not self.weights:
            return answer_reward
        turn = experience.turn.clamp(0, len(self.weights) - 1).long()
        return answer_reward * torch.tensor(self.weights, dtype=answer_reward.dtype, device=answer_reward.device)[turn]
