"""Measures of a whole row: weights, thresholds, criteria that split a group."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from polopt import ops
from polopt.credit.groupings import SamePrompt, WholeBatch
from polopt.credit.parts import Grouping, Measure
from polopt.experience import Experience
from polopt.schedules import Schedule, now


def amount(setting: float | Schedule | Measure, experience: Experience) -> float | Tensor:
    """Returns the current value of a setting: a number, or one for each row, [B]."""
    return setting(experience) if isinstance(setting, Measure) else now(setting)


class AnswerEntropy(Measure):
    """Entropy of the answers of the row's group: -sum_c f_c log f_c, f_c the share of rows with answer c.

    Answers are `extras["answer"]`, compared as texts. base: of the logarithm, 2 for bits, e for nats. The entropy is
    0 where all answers are equal and at most log(n) in a group of n.
    """

    base: float = 2.0
    within: Grouping = SamePrompt()

    reads = frozenset({"extras.answer"})

    def setup(self) -> None:
        if self.base <= 1:
            raise ValueError(f"credit.AnswerEntropy: base must be > 1, found {self.base}")

    def forward(self, experience: Experience) -> Tensor:
        group = self.within(experience)
        answer = torch.tensor(ops.numbered(experience.extras["answer"]), dtype=torch.long, device=group.device)
        share = ops.group_size(ops.crossed(group, answer)).double() / ops.group_size(group)
        # An answer's share is the probability of drawing one of its rows: the sum over answers is a mean over rows.
        return -ops.group_mean(share.log(), group) / math.log(self.base)


class SuccessRate(Measure):
    """Mean outcome of the row's group, by default of the whole batch; `invert` gives 1 minus it."""

    within: Grouping = WholeBatch()
    invert: bool = False

    reads = frozenset({"outcome"})

    def forward(self, experience: Experience) -> Tensor:
        rate = ops.group_mean(experience.outcome, self.within(experience))
        return 1 - rate if self.invert else rate


class LogisticMeasure(Measure):
    """1 / (1 + exp(-slope (x - centre))): a logistic step of another measure. A negative slope steps down, and two
    steps of opposite slopes add up to 1."""

    of: Measure
    slope: float = 1.0
    centre: float = 0.0

    def forward(self, experience: Experience) -> Tensor:
        return torch.sigmoid(self.slope * (self.of(experience) - self.centre))
