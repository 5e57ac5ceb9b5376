"""Averages of gradients: exact on quadratics, an unbiased Hessian by enumeration, resting places of parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from polopt.lab.policy import TabularPolicy
from polopt.lab.tree import TokenTree
from polopt.methods.npg_igt import npg_igt
from polopt.methods.ppo import ppo
from polopt.updates import BatchLoss, HessianAidedMomentum, PlainSettings, TransportedMomentum


class Quadratic:
    """The loss p'Ap / 2 - b'p, as a `BatchLoss`."""

    def __init__(self, parameter: torch.nn.Parameter, a: Tensor, b: Tensor) -> None:
        self.parameter, self.a, self.b = parameter, a, b
        self.metrics: list[dict[str, Tensor]] = []

    def gradient(self, parameters: Any) -> list[Tensor]:
        return [self.a @ self.parameter.detach() - self.b]

    def hessian_product(self, parameters: Any, vector: Tensor) -> Tensor:
        return self.a @ vector


def run(rule: Any, steps: int, normalised: bool) -> list[float]:
    """Distances of the direction from the gradient where it was used."""
    draw = torch.Generator().manual_seed(1)
    a, b, p = (
        torch.randn(3, 3, generator=draw).double(),
        torch.randn(3, generator=draw).double(),
        torch.randn(3, generator=draw),
    )
    parameter = torch.nn.Parameter(p.double())
    loss: Any = Quadratic(parameter, a @ a.T, b)
    stepper = rule.begin([parameter], PlainSettings(lr=0.05))
    found = []
    for _ in range(steps):
        resting, count = parameter.detach().clone(), stepper.count
        stepper.begin_batch(draw)
        record = stepper.step_on_batch(loss)
        stepper.end_batch()
        if stepper.count == count:
            assert torch.equal(parameter.detach(), resting)
            continue
        found.append(float((stepper.direction - (a @ a.T @ resting - b)).norm()))
        step = parameter.detach() - resting
        scale = stepper.direction.norm() if normalised else 1.0
        torch.testing.assert_close(step, -0.05 * stepper.direction / scale)
        assert record["update/step_norm"] == pytest.approx(float(step.norm()))
    return found


@pytest.mark.parametrize("normalised", [True, False])
def test_on_quadratics_the_average_is_the_gradient(normalised: bool) -> None:
    for rule in (TransportedMomentum, HessianAidedMomentum):
        assert max(run(rule(normalised=normalised), 20, normalised)) < 1e-12
    assert max(run(TransportedMomentum(extrapolate=False, normalised=normalised), 20, normalised)) > 0.1


def test_the_weight_of_a_gradient() -> None:
    rule = TransportedMomentum(power=0.8, least=0.1)
    assert [rule.eta(t) for t in (0, 1, 100)] == pytest.approx([1.0, (2 / 3) ** 0.8, 0.1])
    assert TransportedMomentum(power=0).eta(7) == 1.0


def test_the_hessian_is_unbiased_by_enumeration() -> None:
    """Rows of all answers, each of an advantage times its probability, against the Hessian of the exact value."""
    outcome = torch.randn(9, generator=torch.Generator().manual_seed(2)).tolist()
    tree = TokenTree.full(3, 2, lambda _, answer: outcome[3 * answer[0] + answer[1]], prompts=1)
    policy = TabularPolicy(tree, spread=1.0, seed=3)
    leaves = tree.leaves()
    logp = torch.where(leaves.mask, policy.evaluate(leaves).logp, 0).sum(1)
    advantage = (tree.outcome.flatten() * logp.exp() * len(logp))[:, None] * leaves.mask
    batch = leaves.replace(advantage=advantage.detach(), group=torch.arange(len(leaves)))
    vector = torch.randn(policy.logits.numel(), generator=torch.Generator().manual_seed(4)).double()
    objective = npg_igt().objective
    for rows in (100, 4):
        loss = BatchLoss(policy, objective, policy.evaluate, batch.split(rows))
        ours = loss.hessian_product([policy.logits], vector)

        def value(flat: Tensor) -> Tensor:
            table = torch.where(tree.choices, flat.view_as(policy.logits), -torch.inf).log_softmax(-1)
            chosen = table[tree.nodes[leaves.extras["leaf"]], leaves.extras["tokens"]]
            return -(torch.where(leaves.mask, chosen, 0).sum(1).exp() * tree.outcome.flatten()).sum()

        exact = torch.autograd.functional.hvp(value, policy.logits.detach().flatten(), vector)[1]
        torch.testing.assert_close(ours, exact, rtol=1e-9, atol=1e-12)


def test_a_batch_without_a_step_leaves_the_policy_where_it_was() -> None:
    parameter = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    stepper = TransportedMomentum().begin([parameter], PlainSettings(lr=0.5))
    loss: Any = Quadratic(parameter, torch.eye(2), torch.zeros(2))
    for _ in range(2):
        stepper.begin_batch(torch.Generator())
        stepper.step_on_batch(loss)
    resting = parameter.detach().clone()
    stepper.begin_batch(torch.Generator())
    assert not torch.equal(parameter.detach(), resting)
    stepper.end_batch()
    assert torch.equal(parameter.detach(), resting)


def test_refused() -> None:
    with pytest.raises(ValueError, match="linear in the advantages"):
        ppo(kl=0).but(update=HessianAidedMomentum())
    with pytest.raises(ValueError, match="0 < least <= 1"):
        TransportedMomentum(least=0)
