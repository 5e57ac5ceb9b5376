"""Preference losses: the rows of a group are compared two by two, by the reward that the policy implies for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.objectives.aggregates import TokenMean
from polopt.objectives.implicit import ImplicitReward, LogRatioReward
from polopt.objectives.links import LogisticLink, PairLink
from polopt.objectives.parts import Aggregate, Objective, Regulariser
from polopt.objectives.surrogate import regularised
from polopt.support import SupportError


class PairedObjective(Objective):
    """mean over pairs of link(r_i - r_j) + sum coefficient * aggregate(regulariser), r the implicit reward.

    Every two rows of one group whose outcomes differ are a pair, and row i of it, of the higher outcome, is preferred:
    two rows are one pair, a ranked list of n rows n (n - 1) / 2. Tied rows, rows without decisions and rows alone in
    their group are in none. Every pair of the optimiser batch counts the same; a batch without pairs has loss 0.

    by: what rows are compared by: "outcome", or "advantage", that of the row's first decision, which the reward part
    and the credit have computed. aggregate: the reducer of the regularisers.

    Metrics are means over pairs: `pairs/accuracy`, the fraction whose implicit reward is higher for the preferred row;
    `pairs/margin`; `pairs/chosen` and `pairs/rejected`, the implicit rewards.

    Raises:
        ExperienceError: a micro-batch holds a part of a group.
        SupportError: batch and evaluation hold log-probabilities over different supports.
    """

    implicit: ImplicitReward = LogRatioReward()
    link: PairLink = LogisticLink()
    by: Literal["outcome", "advantage"] = "outcome"
    regularise: Sequence[Regulariser] = ()
    aggregate: Aggregate = TokenMean()

    binds = "group"

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({self.by, "group"})

    def contributes(self, experience: Experience) -> Tensor:
        """Returns the rows that contribute: without regularisers, those in a pair."""
        return experience.mask.any(1) if len(self.regularise) else partners(experience, self.by) > 0

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        evaluation.check(experience.mask)
        if evaluation.support != experience.support:
            raise SupportError(
                f"objectives.PairedObjective: the batch's log-probs were taken over {experience.support}, the policy's "
                f"over {evaluation.support}; evaluate the policy with the batch's support"
            )
        self._check_groups(experience)
        experience, evaluation = experience.zero_masked(), evaluation.zero_masked(experience.mask)
        reward = self.implicit(experience, evaluation)
        preferred, other = pairs(experience, self.by)
        margin = reward[preferred] - reward[other]
        compared = compared_by(experience, self.by).detach().to(reward)
        count = (partners(experience.denominator_batch, self.by).sum() / 2).to(reward).clamp(min=1)
        loss = self.link(margin, compared[preferred] - compared[other]).sum() / count
        with torch.no_grad():
            found = {
                "pairs/accuracy": (margin > 0).to(reward),
                "pairs/margin": margin,
                "pairs/chosen": reward[preferred],
                "pairs/rejected": reward[other],
            }
            metrics = {name: value.detach().sum() / count for name, value in found.items()}
        added, more = regularised(self.regularise, self.aggregate, experience, evaluation)
        return Loss(loss + added, metrics | more)

    def _check_groups(self, experience: Experience) -> None:
        there = partners(experience, self.by)
        expected = experience.local_rows(partners(experience.full_batch, self.by))
        if not torch.equal(there, expected.to(there)):
            raise ExperienceError(
                "objectives.PairedObjective compares the rows of a group, and this micro-batch of "
                f"{len(experience)} rows holds a part of one; split the batch with "
                "experience.split(rows, binds=objective.binding)"
            )


def compared_by(experience: Experience, by: Literal["outcome", "advantage"]) -> Tensor:
    """Returns what the rows are compared by, [B]: their outcome, or the advantage of their first decision, 0 for a row
    without decisions."""
    if by == "outcome":
        return experience.outcome
    first = experience.mask.to(torch.uint8).argmax(1, keepdim=True)
    return torch.where(experience.mask, experience.advantage, 0).gather(1, first)[:, 0]


def partners(experience: Experience, by: Literal["outcome", "advantage"]) -> Tensor:
    """Counts each row's pairs, [B]: rows of its group with decisions that compare unequal; 0 without decisions."""
    decided, group, value = experience.mask.any(1), experience.group, compared_by(experience, by)
    others = ops.group_sum(decided.double(), group) - ops.group_sum(decided.double(), ops.crossed(group, value))
    return torch.where(decided, others, 0)


def pairs(experience: Experience, by: Literal["outcome", "advantage"]) -> tuple[Tensor, Tensor]:
    """Returns the pairs [P] as indices of the preferred row and of the other one."""
    decided, group, value = experience.mask.any(1), experience.group, compared_by(experience, by)
    index, _ = ops.group_index(group)
    found = [index.new_zeros(0, 2)]
    for rows in index.argsort(stable=True).split(index.bincount().tolist()):
        better = value[rows, None] > value[None, rows]
        found.append(rows[(better & decided[rows, None] & decided[None, rows]).nonzero()])
    both = torch.cat(found)
    return both[:, 0], both[:, 1]
