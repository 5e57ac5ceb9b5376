"""Numbers that are known of a whole row: weights, thresholds, what halves a group."""

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
    """What a setting is worth now: a number, or [B] numbers, one for each row."""
    return setting(experience) if isinstance(setting, Measure) else now(setting)


class AnswerEntropy(Measure):
    """Entropy of the answers of the row's group: -sum_c f_c log f_c, f_c the share of rows that answered c.

    Answers are `extras["answer"]`, and alike if their texts are. base: of the logarithm, 2 for bits, e for nats. It is
    0 where all answered alike and at most log(n) in a group of n.
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
        # An answer's share is the chance of drawing one of its rows: the sum over answers is a mean over rows.
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
    """1 / (1 + exp(-slope (x - centre))): a soft step of another measure. A negative slope steps down, and the two of
    opposite slopes add up to 1."""

    of: Measure
    slope: float = 1.0
    centre: float = 0.0

    def forward(self, experience: Experience) -> Tensor:
        return torch.sigmoid(self.slope * (self.of(experience) - self.centre))
