"""Log importance ratios."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.anchor import anchor_logp, check_anchor
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.fields import policy_field
from polopt.objectives.parts import Ratio
from polopt.ops import LIMIT


class TokenRatio(Ratio):
    """Per-decision ratio to the behaviour policy: log r_t = logp_t - behaviour logp_t, within +-20."""

    binds = "decision"

    reads = frozenset({"rollout_logp"})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        return (evaluation.logp - experience.rollout_logp).clamp(-LIMIT, LIMIT)


class OldPolicyRatio(Ratio):
    """Per-decision ratio to the learner's policy before its first update on the batch, `old_logp`.

    With `TruncatedImportance` as a weight it splits the ratio to the behaviour policy in two: one part bounded by the
    trust region, one by the cap. Source: decoupled PPO, arXiv:2110.00641.
    """

    binds = "decision"

    reads = frozenset({"old_logp"})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        return (evaluation.logp - experience.old_logp).clamp(-LIMIT, LIMIT)


class _JointRatio(Ratio):
    """A ratio of several decisions at once, on each of them. unit: the decisions of a "row", or of a "turn"."""

    token: Ratio = TokenRatio()
    unit: Literal["row", "turn"] = "row"

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"turn"} if self.unit == "turn" else ())

    def _summed(self, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        """Returns the sum of the unit's log ratios and its number of decisions, at each decision."""
        mask = experience.mask
        log_ratio = torch.where(mask, self.token(experience, evaluation), 0)
        if self.unit == "row":
            return log_ratio.sum(1, keepdim=True).expand_as(log_ratio), experience.lengths[:, None]
        number, _, size = ops.turns(experience.turn, mask)
        if not len(size):
            return log_ratio, experience.lengths[:, None]
        sums = log_ratio.new_zeros(len(size)).index_add(0, number[mask], log_ratio[mask])
        return ops.take(sums, number), size[number]


class SequenceRatio(_JointRatio):
    """Length-normalised ratio of the whole row: log s = mean over decisions of log r_t, on every decision.

    The geometric mean of the token ratios. Averaged over the row's decisions, its gradient is
    s A (1/|y|) sum_t grad logp_t. A row without decisions has s = 1. unit "turn" takes the mean over each turn, as of a
    row of its own. Source: GSPO, arXiv:2507.18071.
    """

    token: Ratio = TokenRatio()
    unit: Literal["row", "turn"] = "row"

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        total, count = self._summed(experience, evaluation)
        return total / count.clamp(min=1)


class AnchorRatio(Ratio):
    """Per-decision ratio to another policy, log r_t = logp_t - anchor logp_t, within +-20: for answers that were given
    and not sampled, the reference stands for the policy that wrote them.

    anchor: the policy, as `objectives.LogRatioReward`'s.
    """

    binds = "decision"

    anchor: str = "reference"

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({policy_field(self.anchor)})

    def setup(self) -> None:
        check_anchor(self, self.anchor)

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        return (evaluation.logp - anchor_logp(experience, self.anchor)).clamp(-LIMIT, LIMIT)


class ProductRatio(_JointRatio):
    """Ratio of the whole row, as of a single action: log r = sum over decisions of log r_t, within +-20, on every
    decision. `SequenceRatio` is its geometric mean by length. unit "turn" takes the product over each turn: with turns
    as the actions, whose states the world chooses, it is the ratio of one action."""

    token: Ratio = TokenRatio()
    unit: Literal["row", "turn"] = "row"

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        return self._summed(experience, evaluation)[0].clamp(-LIMIT, LIMIT)
