"""Losses of single answers with labels: each row is compared with a reference point, not with another row."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.objectives.aggregates import TokenMean
from polopt.objectives.implicit import ImplicitReward, LogRatioReward
from polopt.objectives.links import PairLink, SigmoidLink
from polopt.objectives.parts import Aggregate, Objective, Regulariser
from polopt.objectives.surrogate import regularised
from polopt.support import SupportError


class LabelledObjective(Objective):
    """mean over rows of w_i link(s_i (r_i - z)) + sum coefficient * aggregate(regulariser), r the implicit reward.

    Rows of an outcome above `threshold` have s = 1 and w = `desirable`, others s = -1 and w = `undesirable`.

    relative: whether z is `extras.reference_point`, which `credit.ReferencePoint` writes; otherwise it is 0. aggregate:
    the reducer of the regularisers. Rows without decisions count for nothing. A link sees |outcome - threshold| as its
    gap.

    Metrics: `labels/accuracy`, the fraction of rows whose margin s (r - z) is positive; `labels/margin`, its mean;
    `labels/reference_point`, the mean of z. Source: KTO, arXiv:2402.01306.

    Raises:
        SupportError: batch and evaluation hold log-probabilities over different supports.
    """

    tags = frozenset({"update_rule=dpo"})

    implicit: ImplicitReward = LogRatioReward()
    link: PairLink = SigmoidLink()
    desirable: float = 1.0
    undesirable: float = 1.0
    threshold: float = 0.5
    relative: bool = True
    regularise: Sequence[Regulariser] = ()
    aggregate: Aggregate = TokenMean()

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"outcome", *(["extras.reference_point"] if self.relative else [])})

    def setup(self) -> None:
        if self.desirable < 0 or self.undesirable < 0 or self.desirable + self.undesirable == 0:
            raise ValueError(
                "objectives.LabelledObjective: need desirable >= 0 and undesirable >= 0, one of them > 0, found "
                f"{self.desirable} and {self.undesirable}"
            )

    def contributes(self, experience: Experience) -> Tensor:
        """Returns the rows that contribute: those with decisions."""
        return experience.mask.any(1)

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        evaluation.check(experience.mask)
        if evaluation.support != experience.support:
            raise SupportError(
                f"objectives.LabelledObjective: the batch's log-probs were taken over {experience.support}, the "
                f"policy's over {evaluation.support}; evaluate the policy with the batch's support"
            )
        experience, evaluation = experience.zero_masked(), evaluation.zero_masked(experience.mask)
        decided = experience.mask.any(1)
        reward = self.implicit(experience, evaluation)
        outcome = experience.outcome.to(reward)
        point = experience.extras["reference_point"].to(reward) if self.relative else torch.zeros_like(reward)
        good = outcome > self.threshold
        margin = torch.where(good, reward - point, point - reward)
        weight = torch.where(good, reward.new_tensor(self.desirable), reward.new_tensor(self.undesirable))
        loss = weight * self.link(margin, (outcome - self.threshold).abs())
        count = experience.denominator_batch.mask.any(1).sum().to(reward).clamp(min=1)
        found = {
            "labels/accuracy": (margin > 0).to(reward),
            "labels/margin": margin,
            "labels/reference_point": point,
        }
        metrics = {name: torch.where(decided, value, 0).detach().sum() / count for name, value in found.items()}
        added, more = regularised(self.regularise, self.aggregate, experience, evaluation)
        return Loss(torch.where(decided, loss, 0).sum() / count + added, metrics | more)
