"""The table of KL estimators, every cell enumerated (fixture F6 of the reported mistakes)."""

from __future__ import annotations

import pytest
import torch

import polopt as po
from polopt.objectives import PolicyGradient, ReferenceKL, Surrogate, TokenRatio


class TestKLGradients:
    """A softmax over 3 actions, every expectation enumerated: each action is one row of its exact weight."""

    logits = torch.tensor([0.3, -0.5, 1.1], dtype=torch.float64)
    reference = torch.tensor([-0.2, 0.4, 0.6], dtype=torch.float64).log_softmax(0)
    behaviour = torch.tensor([0.9, 0.1, -0.4], dtype=torch.float64).log_softmax(0)

    def truth(self, forward: bool):
        """KL(policy || reference), or if `forward` KL(reference || policy), and its gradient by the logits."""
        logits = self.logits.clone().requires_grad_()
        logp = logits.log_softmax(0)
        p, d = (self.reference, self.reference - logp) if forward else (logp, logp - self.reference)
        kl = (p.exp() * d).sum()
        return kl.item(), torch.autograd.grad(kl, logits)[0]

    def estimate(self, sampler, **settings):
        """Expected value and gradient of the part, one action at a time under the sampler's probabilities."""
        logits = self.logits.clone().requires_grad_()
        value, grad = 0.0, torch.zeros(3, dtype=torch.float64)
        objective = Surrogate(ratio=None, regularise=[ReferenceKL(coefficient=1.0, **settings)])
        for action in range(3):
            one = lambda x: x[action].reshape(1, 1)  # noqa: B023, E731
            experience = po.Experience(
                mask=torch.ones(1, 1, dtype=torch.bool),
                rollout_logp=one(sampler),
                ref_logp=one(self.reference),
                advantage=torch.zeros(1, 1),
            )
            result = objective(experience, po.Evaluation(logp=one(logits.log_softmax(0))))
            chance = sampler[action].exp()
            value += (chance * result.metrics["ReferenceKL"]).item()
            grad += chance * torch.autograd.grad(result.loss, logits)[0]
        return value, grad

    @pytest.mark.parametrize("on_policy", [True, False])
    def test_the_table(self, on_policy):
        policy = self.logits.log_softmax(0)
        sampler = policy if on_policy else self.behaviour
        reverse, reverse_grad = self.truth(forward=False)
        _, forward_grad = self.truth(forward=True)
        zero = torch.zeros(3, dtype=torch.float64)
        right = {"k1": zero, "k2": reverse_grad, "k3": forward_grad}
        for kind, expected in right.items():
            value, grad = self.estimate(sampler, value=kind, gradient=kind)
            # Value: k1 and k3 are unbiased on policy, k2 never is; off policy all are biased.
            unbiased = on_policy and kind != "k2"
            assert (abs(value - reverse) < 1e-12) == unbiased, (kind, value, reverse)
            assert torch.allclose(grad, expected, atol=1e-12) == on_policy, (kind, grad, expected)
            # Value and gradient are chosen apart.
            mixed_value, mixed_grad = self.estimate(sampler, value="k1", gradient=kind)
            assert mixed_value == pytest.approx(self.estimate(sampler, value="k1", gradient="k1")[0], abs=1e-14)
            torch.testing.assert_close(mixed_grad, grad, rtol=0, atol=1e-14)
            # With the importance ratio, on and off policy: k1's and k3's gradient is KL(policy || reference)'s.
            _, corrected = self.estimate(sampler, value="k1", gradient=kind, ratio=TokenRatio())
            assert torch.allclose(corrected, reverse_grad, atol=1e-12) == (kind != "k2"), (kind, corrected)

    def test_k1_in_the_reward_is_the_gradient_of_the_reverse_kl(self):
        """The classical placement: E[-A grad logp] with A = -coefficient k1 is grad KL(policy || reference)."""
        _, expected = self.truth(forward=False)
        logits = self.logits.clone().requires_grad_()
        grad = torch.zeros(3, dtype=torch.float64)
        for action in range(3):
            logp = logits.log_softmax(0)[action].reshape(1, 1)
            experience = po.Experience(
                mask=torch.ones(1, 1, dtype=torch.bool),
                rollout_logp=logp.detach(),
                ref_logp=self.reference[action].reshape(1, 1),
            )
            reward = po.rewards.KLPenalty(coefficient=1.0)(experience)
            loss = Surrogate(trust=PolicyGradient())(
                experience.replace(advantage=reward), po.Evaluation(logp=logp)
            ).loss
            grad += logp.detach().exp().item() * torch.autograd.grad(loss, logits)[0]
        torch.testing.assert_close(grad, expected, rtol=0, atol=1e-12)
