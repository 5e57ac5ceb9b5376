"""Numbers that describe a row."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Experience
from polopt.features.base import Grouping, RowFeature
from polopt.features.groupings import SamePrompt, WholeBatch
from polopt.schedules import Schedule, now


class DecisionCount(RowFeature):
    """Number of decisions."""

    def forward(self, experience: Experience) -> Tensor:
        return experience.lengths.to(experience.precision)


class TurnCount(RowFeature):
    """Number of turns with at least one decision."""

    reads = frozenset({"turn"})

    def forward(self, experience: Experience) -> Tensor:
        turn = torch.where(experience.mask, experience.turn, -1).sort(1).values
        new = torch.cat([turn[:, :1] >= 0, (turn[:, 1:] != turn[:, :-1]) & (turn[:, 1:] >= 0)], 1)
        return new.sum(1).to(experience.precision)


class MeanEntropy(RowFeature):
    """Mean entropy of the behaviour policy at the row's decisions, in nats; 0 for a row without decisions."""

    reads = frozenset({"entropy"})

    def forward(self, experience: Experience) -> Tensor:
        entropy = torch.where(experience.mask, experience.entropy, 0)
        return entropy.sum(1) / experience.lengths.clamp(min=1)


class RowField(RowFeature):
    """A number that the environment or the training loop recorded for each row: `extras[name]`, [B]."""

    name: str

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({f"extras.{self.name}"})

    def forward(self, experience: Experience) -> Tensor:
        return torch.as_tensor(experience.extras[self.name], device=experience.device)


def setting_values(setting: float | Schedule | RowFeature, experience: Experience) -> float | Tensor:
    """Returns the current value of a setting: a number, or one for each row, [B]."""
    return setting(experience) if isinstance(setting, RowFeature) else now(setting)


class AnswerEntropy(RowFeature):
    """Entropy of the answers of the row's group: -sum_c f_c log f_c, f_c the share of rows with answer c.

    Answers are `extras["answer"]`, compared as texts. base: of the logarithm, 2 for bits, e for nats. The entropy is
    0 where all answers are equal and at most log(n) in a group of n.
    """

    base: float = 2.0
    within: Grouping = SamePrompt()

    reads = frozenset({"extras.answer"})
    reads_batch = True

    def setup(self) -> None:
        if self.base <= 1:
            raise ValueError(f"features.AnswerEntropy: base must be > 1, found {self.base}")

    def forward(self, experience: Experience) -> Tensor:
        group = self.within(experience)
        answer = torch.tensor(ops.numbered(experience.extras["answer"]), dtype=torch.long, device=group.device)
        share = ops.group_size(ops.crossed(group, answer)).double() / ops.group_size(group)
        # An answer's share is the probability of drawing one of its rows: the sum over answers is a mean over rows.
        return -ops.group_mean(share.log(), group) / math.log(self.base)


class SuccessRate(RowFeature):
    """Mean outcome of the row's group, by default of the whole batch; `invert` gives 1 minus it."""

    within: Grouping = WholeBatch()
    invert: bool = False

    reads = frozenset({"outcome"})
    reads_batch = True

    def forward(self, experience: Experience) -> Tensor:
        rate = ops.group_mean(experience.outcome, self.within(experience))
        return 1 - rate if self.invert else rate


class Logistic(RowFeature):
    """1 / (1 + exp(-slope (x - centre))): a logistic step of another feature. A negative slope steps down, and two
    steps of opposite slopes add up to 1."""

    of: RowFeature
    slope: float = 1.0
    centre: float = 0.0

    @property
    def reads_batch(self) -> bool:  # type: ignore[override]
        return self.of.reads_batch

    def forward(self, experience: Experience) -> Tensor:
        return torch.sigmoid(self.slope * (self.of(experience) - self.centre))


class Confidence(RowFeature):
    """exp of the mean log-probability over the least likely decisions of the row: round(share n) of n, at least one;
    1 for a row without decisions. At share 1 it is one over the row's perplexity."""

    share: float = 0.2

    reads = frozenset({"rollout_logp"})

    def setup(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"features.Confidence: share must be in (0, 1], found {self.share}")

    def forward(self, experience: Experience) -> Tensor:
        low = ops.top_share(-experience.rollout_logp, experience.mask, self.share)
        return ops.row_mean(experience.rollout_logp, low).exp()
