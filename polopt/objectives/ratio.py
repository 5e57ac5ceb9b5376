"""Importance ratios between the current policy and an earlier one."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.fields import OLD
from polopt.layers import Layer, check_layer
from polopt.objectives.parts import Ratio
from polopt.ops import LIMIT


class TokenRatio(Ratio):
    """Per-decision ratio to the behaviour policy: log r_t = logp_t - behaviour logp_t, within +-20."""

    reads = frozenset({"rollout_logp"})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        return (evaluation.logp - experience.rollout_logp).clamp(-LIMIT, LIMIT)


class OldPolicyRatio(Ratio):
    """Per-decision ratio to the learner's policy before its first update on the batch, `old_logp`.

    With `TruncatedImportance` as a weight it splits the ratio to the behaviour policy in two: one part bounded by the
    trust region, one by the cap. Source: decoupled PPO, arXiv:2110.00641.
    """

    reads = frozenset({"old_logp"})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        return (evaluation.logp - experience.old_logp).clamp(-LIMIT, LIMIT)


class RatioExceptDemonstrations(Ratio):
    """Another ratio, and 1 on demonstrated rows, for which there is no behaviour policy: exp(logp - sg(logp)), with the
    gradient of the score, inside every trust region. For credits with `Credit.judges_demonstrations`."""

    ratio: Ratio = TokenRatio()

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        own = evaluation.logp - evaluation.logp.detach()
        return torch.where(experience.is_demonstration[:, None], own, self.ratio(experience, evaluation))


class LayerRatio(Ratio):
    """Per-decision ratio of an inner layer's policy: log r_t = logp_t - old logp_t, both of softmax(W_U h), with h
    the output of layer `layer` (from 1) and W_U the output layer. among: if given, `layer` is counted in a network of
    that many layers, and the layer at the same relative depth is taken.

    Its gradient reaches the layers up to that one, and W_U. final_norm: whether h is normalised as the last layer's
    output is; without, the scale of h differs from layer to layer. This is not the ratio to the behaviour policy.
    Source: BuPO, arXiv:2512.19673.
    """

    layer: int
    among: int | None = None
    final_norm: bool = False

    def setup(self) -> None:
        check_layer("objectives.LayerRatio", self.layer, self.among)

    @property
    def _name(self) -> str:
        return Layer(self.layer, self.final_norm, self.among).name("logp")

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({OLD + self._name})

    @property
    def policy_outputs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"extras." + self._name})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        old = experience.extras[OLD.removeprefix("extras.") + self._name]
        return torch.where(experience.mask, evaluation.extras[self._name] - old, 0).clamp(-LIMIT, LIMIT)


class SequenceRatio(Ratio):
    """Length-normalised ratio of the whole row: log s = mean over decisions of log r_t, on every decision.

    The geometric mean of the token ratios. Averaged over the row's decisions, its gradient is
    s A (1/|y|) sum_t grad logp_t. A row without decisions has s = 1. Source: GSPO, arXiv:2507.18071.
    """

    token: Ratio = TokenRatio()

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        log_ratio = self.token(experience, evaluation) * experience.mask
        mean = log_ratio.sum(1) / experience.lengths.clamp(min=1)
        return mean[:, None].expand_as(log_ratio)
