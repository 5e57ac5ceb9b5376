"""Concave reward transforms, and the intersection over union of intervals."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.rewards.parts import OutcomeReward, Reward


def bent(reward: Tensor, knee: float = 0.8, above: float = 0.01, below: float = 1.0) -> Tensor:
    """Transforms a reward in [0, 1], flat above the knee and increasingly steep below it:
        R >= knee:  knee + above ln(1 + R - knee);        R < knee:  knee - (e^(below (knee - R)) - 1) / (e^below - 1).

    The transform is increasing and continuous. At the knee its left slope is below / (e^below - 1), its right slope
    `above`. Source: TempSamp-R1, arXiv:2509.18056.
    """
    over = (reward - knee).clamp(min=0)
    return knee + above * over.log1p() - (below * (knee - reward).clamp(min=0)).expm1() / math.expm1(below)


def interval_iou(found: Tensor, true: Tensor) -> Tensor:
    """Intersection over union of intervals [..., 2], each (start, end): 1 for the same one, 0 for disjoint ones.

    An interval that ends before it starts is empty, and so is an empty intersection: 0. Two points are the same
    interval if they are the same point.
    """
    start, end = torch.maximum(found[..., 0], true[..., 0]), torch.minimum(found[..., 1], true[..., 1])
    shared = (end - start).clamp(min=0)
    union = (found[..., 1] - found[..., 0]).clamp(min=0) + (true[..., 1] - true[..., 0]).clamp(min=0) - shared
    same = (found == true).all(-1).to(shared.dtype)
    return torch.where(union > 0, shared / torch.where(union > 0, union, 1), same)


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
                "rewards.BentReward: need knee in [0, 1], above > 0 and below > 0, found "
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
        shown = experience.is_demonstration.reshape(-1, *[1] * (reward.ndim - 1))
        return torch.where(shown, self.factor * reward, reward)
