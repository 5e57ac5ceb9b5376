"""Preferences between rows of a group, and the share of the others that a row is preferred to."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Experience
from polopt.part import Part
from polopt.rewards.judges.parts import Judge, Judgement
from polopt.rewards.parts import Reward


class Preference(Part):
    """`preference(experience, first [P], second [P]) -> [P]`: the probability that row `first` is preferred to row
    `second`, with P(i, j) + P(j, i) = 1. It need not come from any reward: it may be intransitive."""

    tags = frozenset({"reward_source=preference"})

    def forward(self, experience: Experience, first: Tensor, second: Tensor) -> Tensor:
        raise NotImplementedError


class OutcomePreference(Preference):
    """P(i, j) = sigmoid((R_i - R_j) / temperature) with R the outcomes: Bradley-Terry; with temperature 0, 1 for the
    higher outcome and 1/2 for equal ones.

    temperature (>= 0): the unit of the outcomes.
    """

    temperature: float = 0.0

    reads = frozenset({"outcome"})

    def setup(self) -> None:
        if self.temperature < 0:
            raise ValueError(f"rewards.OutcomePreference: temperature must be >= 0, found {self.temperature}")

    def forward(self, experience: Experience, first: Tensor, second: Tensor) -> Tensor:
        gap = experience.outcome[first] - experience.outcome[second]
        return (1 + gap.sign()) / 2 if self.temperature == 0 else torch.sigmoid(gap / self.temperature)


class JudgedPreference(Preference):
    """P(i, j) = (s_ij + 1 - s_ji) / 2, with s_ij the judge's score in [0, 1] of answer i where answer j is the
    reference: the mean over both orders, so that a judge that prefers the first of two is corrected.

    judge: one that compares, with scores in [0, 1].

    Raises:
        ValueError: the judge does not compare, or a score lies outside [0, 1].
    """

    judge: Judge

    reads = frozenset({"extras.task", "extras.answer"})

    def setup(self) -> None:
        if not self.judge.compares:
            raise ValueError(
                f"rewards.JudgedPreference: {self.judge!r} reads one answer alone; take a judge that compares two"
            )

    def forward(self, experience: Experience, first: Tensor, second: Tensor) -> Tensor:
        tasks, answers = experience.extras["task"], experience.extras["answer"]
        one, other = torch.cat([first, second]).tolist(), torch.cat([second, first]).tolist()
        found = self.judge([tasks[i].prompt for i in one], [answers[i] for i in one], [answers[j] for j in other])
        scores = found.scores.to(experience.device, experience.precision)
        if ((scores < 0) | (scores > 1)).any():
            raise ValueError(
                f"rewards.JudgedPreference: scores must be in [0, 1], found {scores.min():g} to {scores.max():g} from "
                f"{self.judge!r}"
            )
        there, back = scores.chunk(2)
        return (there + 1 - back) / 2


class RewardPreference(Preference):
    """P(i, j) = sigmoid((s_i - s_j) / temperature), with s the judge's scores: Bradley-Terry, as a reward model is
    fitted.

    judge: one that reads one answer alone. temperature (> 0): the unit of its scores.

    Raises:
        ValueError: the judge compares, or a temperature that is not above 0.
    """

    judge: Judge
    temperature: float = 1.0

    reads = frozenset({"extras.task", "extras.answer"})

    def setup(self) -> None:
        if self.judge.compares or self.temperature <= 0:
            raise ValueError(
                f"rewards.RewardPreference: it needs temperature > 0 and a judge of one answer, found "
                f"{self.temperature} and {self.judge!r}; rewards.JudgedPreference takes one that compares"
            )

    def forward(self, experience: Experience, first: Tensor, second: Tensor) -> Tensor:
        scores = self._judged(experience).scores.to(experience.device, experience.precision)
        return torch.sigmoid((scores[first] - scores[second]) / self.temperature)

    def _judged(self, experience: Experience) -> Judgement:
        found: Judgement = self.judge([task.prompt for task in experience.extras["task"]], experience.extras["answer"])
        return found


class GaussianPreference(RewardPreference):
    """P(i, j) = Phi((mu_i - mu_j) / (temperature sqrt(sigma_i^2 + sigma_j^2))), with mu the judge's scores and sigma
    the `std` of its details: a Gaussian reward, `backends.GaussianReward`.

    judge: one whose details have `std`. temperature (> 0): of all margins.

    Raises:
        ValueError: as `RewardPreference`, or, when called, details without `std`.
    """

    def forward(self, experience: Experience, first: Tensor, second: Tensor) -> Tensor:
        found = self._judged(experience)
        if not all("std" in row for row in found.details):
            raise ValueError(
                f"rewards.GaussianPreference: {self.judge!r} gives no standard deviations; take a LearnedJudge of a "
                "Gaussian reward, or rewards.RewardPreference"
            )
        mean = found.scores.to(experience.device, experience.precision)
        variance = mean.new_tensor([row["std"] for row in found.details]).square()
        z = (mean[first] - mean[second]) / (variance[first] + variance[second]).sqrt()
        return torch.special.ndtr(z / self.temperature)


class WinRate(Reward):
    """R_i = mean over the rows j of the group of P(i, j): the share of the other answers to the same prompt that row i
    is preferred to, in [0, 1].

    Among the policy's own answers its expectation is 1/2, whatever the preference. A row with which nothing is compared
    has 1/2, and so has an opponent.

    preference: between two rows. own: whether the mean includes the row itself, with 1/2.
    against: "all" other rows of the group, with the opponents among them, if there are any; or "opponents" alone.
    Source: SPO, arXiv:2401.04056; with `own`, SPPO, arXiv:2405.00675; against opponents, arXiv:2312.00886.

    Raises:
        ValueError: `own` in a comparison with opponents alone.
    """

    tags = frozenset[str]()

    preference: Preference = OutcomePreference()
    own: bool = False
    against: Literal["all", "opponents"] = "all"

    reads_batch: ClassVar[bool] = True

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"group"} | ({"extras.is_opponent"} if self.against == "opponents" else set()))

    def setup(self) -> None:
        if self.own and self.against == "opponents":
            raise ValueError(
                "rewards.WinRate: own counts the row itself, which is no opponent; set own to false, or against to all"
            )

    def forward(self, experience: Experience) -> Tensor:
        first, second = ordered_pairs(experience.group)
        opponent = experience.is_opponent
        counts = ~opponent[first] if self.against == "all" else ~opponent[first] & opponent[second]
        first, second = first[counts], second[counts]
        won = self.preference(experience, first, second).to(experience.precision)
        total = won.new_zeros(len(experience)).index_add(0, first, won)
        others = won.new_zeros(len(experience)).index_add(0, first, torch.ones_like(won))
        if self.own:
            return (total + 0.5) / (others + 1)
        return torch.where(others > 0, total / others.clamp(min=1), 0.5)


def ordered_pairs(group: Tensor) -> tuple[Tensor, Tensor]:
    """Returns every two different rows of one group, in both orders, as indices [P] and [P]."""
    index, _ = ops.group_index(group)
    found = [index.new_zeros(0, 2)]
    for rows in index.argsort(stable=True).split(index.bincount().tolist()):
        both = torch.cartesian_prod(rows, rows).view(-1, 2)
        found.append(both[both[:, 0] != both[:, 1]])
    pairs = torch.cat(found)
    return pairs[:, 0], pairs[:, 1]
