"""Natural gradients: Fisher products against enumerated matrices, the line search by hand, the tabular identity."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.objectives import PolicyGradient, Surrogate, TokenRatio, Unclipped
from polopt.policies.heads import Beta, Gaussian, SquashedGaussian
from polopt.policies.network import NetworkPolicy
from polopt.solvers import ConjugateGradient
from polopt.training.specs import OptimiserSpec
from polopt.updates import BatchLoss, LineSearch, NaturalGradient, RMSprop
from polopt.updates.batch_loss import divergence, joined, laws_of


def decided(policy: NetworkPolicy, rows: int = 5, columns: int = 3, seed: int = 0) -> Experience:
    """A batch whose mask leaves out some decisions, of extreme observations and advantages that are not numbers."""
    draw = torch.Generator().manual_seed(seed)
    observation = torch.randn(rows, columns + 1, 2, generator=draw).double()
    mask = torch.rand(rows, columns, generator=draw) < 0.8
    with torch.no_grad():
        action = policy.act(observation[:, :columns].flatten(0, 1), draw).action.unflatten(0, (rows, columns))
    logp = policy.evaluate(Experience(mask=mask, extras={"observation": observation, "action": action})).logp.detach()
    hidden = torch.where(mask[..., None], observation[:, :columns], 1e3)
    return Experience(
        mask=mask,
        rollout_logp=logp,
        advantage=torch.randn(rows, columns, generator=draw).double().where(mask, torch.nan),
        group=torch.arange(rows),
        support=policy.head.support,
        extras={"observation": torch.cat([hidden, observation[:, columns:]], 1), "action": action},
    )


def loss_of(policy: Any, batch: Experience, rows: int = 100, **objective: Any) -> BatchLoss:
    surrogate = Surrogate(**{"trust": Unclipped(), "ratio": TokenRatio(), **objective})
    return BatchLoss(policy, surrogate, policy.evaluate, batch.split(rows))


def actor(policy: NetworkPolicy) -> list[torch.nn.Parameter]:
    return [p for name, p in policy.named_parameters() if not name.startswith("critic")]


def scores(policy: NetworkPolicy, state: Tensor, action: Tensor) -> Tensor:
    """The slope of log pi(a | s), [P]."""
    return joined(torch.autograd.grad(policy.head.logp(policy.law(state), action), actor(policy)))


def test_fisher_products_of_choices_are_those_of_the_enumerated_matrix() -> None:
    policy = NetworkPolicy(observations=2, actions=3, hidden=(4,), seed=1).double()
    batch = decided(policy)
    states = batch.extras["observation"][:, :-1][batch.mask]
    fisher = torch.zeros(2 * 4 + 4 + 4 * 3 + 3, 2 * 4 + 4 + 4 * 3 + 3).double()
    for state in states:
        chance = policy.law(state)[0].exp().detach()
        for action in range(3):
            score = scores(policy, state, torch.tensor(action))
            fisher += chance[action] * torch.outer(score, score) / len(states)
    vector = torch.randn(len(fisher), generator=torch.Generator().manual_seed(3)).double()
    for rows in (100, 2, 1):
        loss = loss_of(policy, batch, rows)
        loss.remember()
        assert loss.law_depends_on(list(policy.parameters())) == [True] * 4 + [False] * 4
        torch.testing.assert_close(loss.fisher_product(actor(policy), vector), fisher @ vector, rtol=1e-9, atol=1e-12)


def test_fisher_products_of_gaussians_are_those_of_the_closed_form() -> None:
    """Of a mean m and log s the Fisher matrix is that of m over s^2, and 2 for each log s."""
    policy = NetworkPolicy(observations=2, dimensions=2, hidden=(3,), seed=1).double()
    with torch.no_grad():
        policy.log_std.copy_(torch.tensor([0.3, -0.5]))
    batch = decided(policy)
    states = batch.extras["observation"][:, :-1][batch.mask]
    size = sum(p.numel() for p in actor(policy))
    fisher = torch.zeros(size, size).double()
    for state in states:
        mean, log_std = policy.law(state)
        for k in range(2):
            slopes = [
                torch.autograd.grad(x, actor(policy), retain_graph=True, allow_unused=True)
                for x in (mean[k], log_std[k])
            ]
            of_mean, of_log = (
                joined([torch.zeros_like(p) if g is None else g for g, p in zip(found, actor(policy), strict=True)])
                for found in slopes
            )
            weight = (-2 * log_std[k]).exp().detach()
            fisher += (weight * torch.outer(of_mean, of_mean) + 2 * torch.outer(of_log, of_log)) / len(states)
    loss = loss_of(policy, batch)
    loss.remember()
    for i in range(0, size, 5):
        unit = torch.eye(size).double()[i]
        torch.testing.assert_close(loss.fisher_product(actor(policy), unit), fisher[i], rtol=1e-9, atol=1e-12)


def test_divergences_of_heads_are_those_of_torch() -> None:
    draw = torch.Generator().manual_seed(0)
    a, b, c, d = (torch.randn(7, 2, generator=draw).double() for _ in range(4))
    normal = torch.distributions.kl_divergence(
        torch.distributions.Normal(a, b.exp()), torch.distributions.Normal(c, d.exp())
    ).sum(-1)
    torch.testing.assert_close(Gaussian(2).divergence((a, b), (c, d)), normal)
    torch.testing.assert_close(SquashedGaussian([-1, -1], [2, 2]).divergence((a, b), (c, d)), normal)
    a, b, c, d = (x.exp() + 1 for x in (a, b, c, d))
    expected = torch.distributions.kl_divergence(torch.distributions.Beta(a, b), torch.distributions.Beta(c, d)).sum(-1)
    torch.testing.assert_close(Beta([-1, -1], [2, 2]).divergence((a, b), (c, d)), expected)


def test_policies_with_logits_have_a_divergence() -> None:
    class Table(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.logits = torch.nn.Parameter(torch.tensor([[0.3, -torch.inf, 1.0], [0.0, 0.5, -1.0]]).double())

        def evaluate(self, experience: Experience, needs: frozenset[str] = frozenset()) -> Evaluation:
            logits = self.logits[experience.extras["state"]]
            chosen = logits.log_softmax(-1).gather(-1, experience.extras["action"][..., None])[..., 0]
            return Evaluation(logp=chosen, logits=logits)

    table, batch = (
        Table(),
        Experience(
            mask=torch.tensor([[True, True]]),
            extras={"state": torch.tensor([[0, 1]]), "action": torch.tensor([[0, 1]])},
        ),
    )
    old = tuple(x.detach() for x in laws_of(table, batch))
    with torch.no_grad():
        table.logits[1, 0] += 1.0
    found = divergence(table, old, laws_of(table, batch))
    p, q = old[0][0, 1].exp(), table.logits[1].log_softmax(-1).exp()
    torch.testing.assert_close(found[0], torch.stack([torch.zeros(()).double(), (p * (p / q).log()).sum()]))
    (slope,) = torch.autograd.grad(found.sum(), table.logits)
    assert slope.isfinite().all()


# fraction -> (improvement, divergence); expected improvement 1, radius 0.1.
SEARCHES: dict[str, tuple[dict[float, tuple[float, float]], float]] = {
    "the whole step": ({1.0: (0.5, 0.1)}, 1.0),
    "too far": ({1.0: (0.5, 0.11), 0.5: (0.3, 0.05)}, 0.5),
    "worse, then too small a gain": ({1.0: (-1.0, 0.0), 0.5: (0.04, 0.0), 0.25: (0.025, 0.0)}, 0.25),
    "not a number": ({1.0: (float("nan"), 0.0), 0.5: (0.2, 0.01)}, 0.5),
    "none": ({1.0: (0.0, 0.0), 0.5: (0.5, 0.2), 0.25: (-0.1, 0.0), 0.125: (0.01, 0.05)}, 0.0),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_line_searches_by_hand(name: str) -> None:
    measured, fraction = SEARCHES[name]
    found = LineSearch(tries=4, accept=0.1)(measured.__getitem__, 1.0, 0.1)
    assert found.fraction == fraction
    assert found.tried == len(measured)
    assert (found.improvement, found.divergence) == measured.get(fraction, (0.0, 0.0))


def test_a_step_is_the_one_of_the_dense_system() -> None:
    """x solves (F + damping) x = g with the dense matrix; with a radius the step's length is as stated, too."""
    batch = decided(NetworkPolicy(observations=2, actions=3, hidden=(3,), seed=1).double())
    for radius in (None, 1e-4):
        policy = NetworkPolicy(observations=2, actions=3, hidden=(3,), seed=1).double()
        parameters, loss = list(policy.parameters()), loss_of(policy, batch, rows=2)
        start = joined([p.detach().clone() for p in actor(policy)])
        loss.remember()
        eye = torch.eye(len(start)).double()
        fisher = torch.stack([loss.fisher_product(actor(policy), unit) for unit in eye])
        gradient = joined(loss.gradient(actor(policy)))
        x = torch.linalg.solve(fisher + 0.1 * eye, gradient)
        scale = 0.2 if radius is None else float((2 * radius / (x @ (fisher + 0.1 * eye) @ x)).sqrt())
        solver = ConjugateGradient(iterations=200, damping=0.1, tolerance=1e-13)
        rule = NaturalGradient(radius=radius, solver=solver, search=None)
        stepper = rule.begin(parameters, OptimiserSpec(lr=0.2))
        record = stepper.step_on_batch(loss)
        torch.testing.assert_close(joined(actor(policy)).detach(), start - scale * x, rtol=1e-8, atol=1e-10)
        assert record["update/expected"] == pytest.approx(scale * float(x @ gradient), rel=1e-8)
        if radius is not None:  # to second order, less the damping's share
            quadratic = 0.5 * scale**2 * float(x @ fisher @ x)
            assert record["update/kl"] == pytest.approx(quadratic, rel=0.05)
        assert [id(p) for p in stepper.stepped] == [id(p) for p in policy.critic.parameters()]


def test_after_minibatches_the_step_is_the_same_and_the_others_take_none() -> None:
    found = []
    for after in (False, True):
        policy = NetworkPolicy(observations=2, actions=3, hidden=(3,), seed=1).double()
        stepper = NaturalGradient(after_minibatches=after).begin(list(policy.parameters()), OptimiserSpec(lr=0.2))
        assert stepper.after_minibatches == after
        assert stepper.stepped == []
        stepper.step_on_batch(loss_of(policy, decided(policy)))
        assert len(stepper.stepped) == (0 if after else len(list(policy.critic.parameters())))
        found.append(joined([p.detach() for p in actor(policy)]))
    torch.testing.assert_close(*found)


def test_refused_rules() -> None:
    with pytest.raises(ValueError, match="line search needs a radius"):
        NaturalGradient(radius=None)
    with pytest.raises(ValueError, match="rule of gradients alone"):
        NaturalGradient(others=NaturalGradient())
    with pytest.raises(ValueError, match=r"solver\.symmetric"):
        NaturalGradient(solver=ConjugateGradient(symmetric=False))
    with pytest.raises(ValueError, match="accept"):
        LineSearch(accept=1.0)
    with pytest.raises(ValueError, match="decay"):
        RMSprop(decay=1.0)


def test_rmsprop_by_hand() -> None:
    p = torch.nn.Parameter(torch.tensor([1.0, -2.0]).double())
    stepper = RMSprop(decay=0.9, eps=0.01).begin([p], OptimiserSpec(lr=0.5))
    expected, v = p.detach().clone(), torch.zeros(2).double()
    for g in (torch.tensor([0.2, -3.0]).double(), torch.tensor([1.0, 0.5]).double()):
        p.grad = g.clone()
        stepper.step()
        v = 0.9 * v + 0.1 * g.square()
        expected = expected - 0.5 * g / (v.sqrt() + 0.01)
        torch.testing.assert_close(p.detach(), expected)
    p.grad = torch.full_like(p, torch.nan)
    stepper.step(torch.tensor(torch.nan))
    torch.testing.assert_close(p.detach(), expected)
    other = RMSprop(decay=0.9, eps=0.01).begin([p], OptimiserSpec(lr=0.5))
    other.load(stepper.state(), lambda value, _: value)
    torch.testing.assert_close(other.state()["0.square_avg"], v)


def test_a_policy_gradient_without_a_ratio_has_the_same_natural_gradient() -> None:
    policy = NetworkPolicy(observations=2, actions=3, hidden=(3,), seed=1).double()
    batch = decided(policy)
    first, second = loss_of(policy, batch), loss_of(policy, batch, ratio=None, trust=PolicyGradient())
    a, b = (joined(loss.gradient(actor(policy))) for loss in (first, second))
    torch.testing.assert_close(a, b)
