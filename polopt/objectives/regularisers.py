"""Regularisers: terms added to the surrogate."""

from __future__ import annotations

from torch import Tensor

from polopt import ops
from polopt.anchor import anchor_logp, check_anchor
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.fields import policy_field
from polopt.objectives.parts import Ratio, Regulariser
from polopt.schedules import Schedule


class SamplerKL(Regulariser):
    """coefficient * k2 to the behaviour policy: (logp - rollout_logp)^2 / 2 at each decision. OPMD's regulariser."""

    binds = "decision"

    reads = frozenset({"rollout_logp"})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        return ops.kl_estimate("k2", evaluation.logp, experience.rollout_logp)


class ForwardKL(Regulariser):
    """-coefficient * logp: KL(sampler || policy) on the sampler's decisions, up to a constant. This is the
    likelihood of all of them, good and bad: the same as raising every advantage by the coefficient, as AsymRE does."""

    binds = "decision"

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        return -evaluation.logp


class ReferenceKL(Regulariser):
    """coefficient * KL estimate to a reference policy, its value and its gradient chosen apart.

    value: the estimator that is reported and added to the loss. gradient: the estimator that is
    differentiated. With decisions sampled from the current policy the expected gradient is

        k1: 0        k2: that of KL(policy || reference)        k3: that of KL(reference || policy)

    and off-policy none of them is. ratio, if given, multiplies the differentiated estimator by the importance
    ratio, whose gradient then turns k1 and k3 into unbiased gradients of KL(policy || reference), on and
    off policy. Defaults: k3 for both, as GRPO (arXiv:2402.03300).

    anchor: the reference policy; the learner as it was one batch earlier ("previous"), which holds back each batch's
    step alone; or the name of another policy, read as `extras.<name>_logp`.
    """

    binds = "decision"

    coefficient: float | Schedule = 0.04
    anchor: str = "reference"
    value: ops.KLEstimator = "k3"
    gradient: ops.KLEstimator = "k3"
    ratio: Ratio | None = None

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({policy_field(self.anchor)})

    def setup(self) -> None:
        check_anchor(self, self.anchor)

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        base = anchor_logp(experience, self.anchor)
        gradient_term = ops.kl_estimate(self.gradient, evaluation.logp, base)
        if self.ratio is not None:
            gradient_term = gradient_term * self.ratio(experience, evaluation).exp()
        value = ops.kl_estimate(self.value, evaluation.logp.detach(), base)
        return gradient_term + (value - gradient_term).detach()


class EntropyBonus(Regulariser):
    """-coefficient * H(policy) at each decision, in nats: a bonus on entropy."""

    binds = "decision"

    coefficient: float | Schedule = 0.01

    policy_outputs = frozenset({"entropy"})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        return -evaluation.entropy


class EntropyTarget(Regulariser):
    """coefficient * |H - target| with H the mean entropy of the whole batch's decisions, in nats.

    The entropy is raised below the target and lowered above it. The terms are sign(H - target) (H_t - target), whose
    token mean is the distance.
    Source: PPO-max, arXiv:2307.04964.
    """

    coefficient: float | Schedule = 0.01
    target: float

    policy_outputs = frozenset({"entropy"})
    full_batch_outputs = frozenset({"entropy"})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        full_batch = experience.full_batch
        side = (ops.masked_mean(full_batch.full_batch_evaluation.entropy, full_batch.mask) - self.target).sign()
        return side * (evaluation.entropy - self.target)


class ValueLoss(Regulariser):
    """coefficient * 0.5 * max((V - R)^2, (clip(V, V_old +- clip) - R)^2), R the batch's `value_target`.

    The credit computes the target (`Credit.value_target`): under GAE R = A + V_old. clip = None drops the second term.
    Source: the PPO reference implementation of arXiv:1707.06347.
    """

    binds = "decision"

    coefficient: float | Schedule = 0.5
    clip: float | None = 0.2

    reads = frozenset({"value", "value_target"})
    policy_outputs = frozenset({"value"})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        old, now = experience.value, evaluation.value
        target = experience.value_target.detach()
        loss = (now - target).square()
        if self.clip is not None:
            clipped = old + (now - old).clamp(-self.clip, self.clip)
            loss = loss.maximum((clipped - target).square())
        return loss / 2
