"""Preference losses: the rows of a group are compared two by two, by the reward that the policy implies for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from polopt.part import Part
from polopt.part_names import name_of
from polopt.support import SupportError

ComparedBy = Literal["outcome", "advantage"]


class Matching(Part):
    """`matching(experience, value [B]) -> ([P], [P])`: the pairs that are compared, as indices of the row of higher
    value and of the other one. Both rows belong to one group and have decisions.

    A pair of equal values is in no list, or in both orders; then each of the two counts 1/2.
    """

    def forward(self, experience: Experience, value: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def partners(self, experience: Experience, value: Tensor) -> Tensor:
        """Counts the pairs that each row is in, [B]."""
        preferred, other = self(experience, value)
        weight = pair_weight(value, preferred, other)
        found = weight.new_zeros(len(experience))
        return found.index_add(0, preferred, weight).index_add(0, other, weight)


class EveryPair(Matching):
    """Every two rows of a group: two rows are one pair, a ranked list of n rows n (n - 1) / 2.

    ties: whether rows of equal value are pairs too, as a regression on differences needs them: a difference of 0 is as
        good a target as any.
    """

    ties: bool = False

    def forward(self, experience: Experience, value: Tensor) -> tuple[Tensor, Tensor]:
        decided, group = experience.mask.any(1), experience.group
        index, _ = ops.group_index(group)
        found = [index.new_zeros(0, 2)]
        for rows in index.argsort(stable=True).split(index.bincount().tolist()):
            first, second = value[rows, None], value[None, rows]
            better = first > second
            if self.ties:
                better = better | ((first == second) & (rows[:, None] != rows))
            found.append(rows[(better & decided[rows, None] & decided[None, rows]).nonzero()])
        both = torch.cat(found)
        return both[:, 0], both[:, 1]

    def partners(self, experience: Experience, value: Tensor) -> Tensor:
        decided, group = experience.mask.any(1), experience.group
        alike = 1.0 if self.ties else ops.group_sum(decided.double(), ops.crossed(group, value))
        return torch.where(decided, ops.group_sum(decided.double(), group) - alike, 0)


def pair_weight(value: Tensor, preferred: Tensor, other: Tensor) -> Tensor:
    """Returns what each pair counts, [P]: 1, or 1/2 if its values are equal, since it is then listed in both orders."""
    return 1 - 0.5 * (value[preferred] == value[other]).double()


class PairedObjective(Objective):
    """mean over pairs of link(r_i - r_j) + sum coefficient * aggregate(regulariser), r the implicit reward.

    Row i of a pair, of the higher outcome, is preferred. By default every two rows of one group whose outcomes differ
    are a pair. Rows without decisions and rows alone in their group are in none. Every pair of the optimiser batch
    counts the same; a batch without pairs has loss 0.

    by: what rows are compared by: "outcome", or "advantage", that of the row's first decision, which the reward part
    and the credit have computed. matching: which rows of a group are pairs. aggregate: the reducer of the regularisers.

    Metrics are means over pairs: `pairs/accuracy`, the fraction whose implicit reward is higher for the preferred row;
    `pairs/margin`; `pairs/chosen` and `pairs/rejected`, the implicit rewards.

    Raises:
        ExperienceError: a micro-batch holds a part of a group.
        SupportError: batch and evaluation hold log-probabilities over different supports.
    """

    tags = frozenset({"negative_use=contrast"})

    implicit: ImplicitReward = LogRatioReward()
    link: PairLink = LogisticLink()
    by: ComparedBy = "outcome"
    matching: Matching = EveryPair()
    regularise: Sequence[Regulariser] = ()
    aggregate: Aggregate = TokenMean()

    binds = "group"

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({self.by, "group"})

    def contributes(self, experience: Experience) -> Tensor:
        """Returns the rows that contribute: without regularisers, those in a pair."""
        return experience.mask.any(1) if len(self.regularise) else self._partners(experience) > 0

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        evaluation.check(experience.mask)
        if evaluation.support != experience.support:
            raise SupportError(
                f"objectives.PairedObjective: the batch's log-probs were taken over {experience.support}, the policy's "
                f"over {evaluation.support}; evaluate the policy with the batch's support"
            )
        check_groups(self, experience, self._partners)
        experience, evaluation = experience.zero_masked(), evaluation.zero_masked(experience.mask)
        reward = self.implicit(experience, evaluation)
        compared = compared_by(experience, self.by).detach()
        preferred, other = self.matching(experience, compared)
        weight = pair_weight(compared, preferred, other).to(reward)
        margin, gap = reward[preferred] - reward[other], (compared[preferred] - compared[other]).to(reward)
        count = (self._partners(experience.denominator_batch).sum() / 2).to(reward).clamp(min=1)
        loss = (weight * self.link(margin, gap)).sum() / count
        with torch.no_grad():
            found = {
                "pairs/accuracy": (margin > 0).to(reward),
                "pairs/margin": margin,
                "pairs/chosen": reward[preferred],
                "pairs/rejected": reward[other],
            }
            metrics = {name: (weight * value.detach()).sum() / count for name, value in found.items()}
        added, more = regularised(self.regularise, self.aggregate, experience, evaluation)
        return Loss(loss + added, metrics | more)

    def _partners(self, experience: Experience) -> Tensor:
        return self.matching.partners(experience, compared_by(experience, self.by))


def check_groups(part: Objective, experience: Experience, partners: Callable[[Experience], Tensor]) -> None:
    """Checks that a micro-batch holds whole groups: its rows have as many partners as in the full batch.

    Raises:
        ExperienceError: it holds a part of a group.
    """
    there = partners(experience)
    expected = experience.local_rows(partners(experience.full_batch))
    if not torch.equal(there, expected.to(there)):
        raise ExperienceError(
            f"{name_of(type(part))} compares the rows of a group, and this micro-batch of "
            f"{len(experience)} rows holds a part of one; split the batch with "
            "experience.split(rows, binds=objective.binding)"
        )


def compared_by(experience: Experience, by: ComparedBy) -> Tensor:
    """Returns what the rows are compared by, [B]: their outcome, or the advantage of their first decision, 0 for a row
    without decisions."""
    if by == "outcome":
        return experience.outcome
    first = experience.mask.to(torch.uint8).argmax(1, keepdim=True)
    return torch.where(experience.mask, experience.advantage, 0).gather(1, first)[:, 0]
