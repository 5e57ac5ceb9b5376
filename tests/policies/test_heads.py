"""Heads of network policies, against torch.distributions, integrals and scipy; the normaliser against numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch.distributions import (
    AffineTransform,
    Categorical,
    Independent,
    Normal,
    TanhTransform,
    TransformedDistribution,
)

from polopt.experience import Experience
from polopt.policies.head import HeadError
from polopt.policies.heads import Beta, Dirichlet, SquashedGaussian, head_of
from polopt.policies.network import NetworkPolicy
from polopt.policies.normaliser import LIMIT, ObservationNormaliser

LOW, HIGH = [-2.0, 1.0], [2.0, 1.5]
BOUNDED: Any = ("squashed_gaussian", "beta", "deterministic")
F64 = torch.float64


def outputs(count: int, rows: int = 6) -> torch.Tensor:
    return torch.randn(rows, count, generator=torch.Generator().manual_seed(3), dtype=F64)


def policy_of(head: Any, **settings: Any) -> NetworkPolicy:
    made = NetworkPolicy(
        observations=3, dimensions=2, head=head, low=LOW, high=HIGH, hidden=(5,), seed=1, **settings
    ).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)))
    return made


def test_illegal_choices_have_probability_0_and_no_gradient() -> None:
    head, output = head_of("categorical", 4, None, None), outputs(4).requires_grad_()
    legal = torch.tensor([[True, False, True, True], [False, False, True, False]]).repeat(3, 1)
    law = head.law(output, legal=legal)
    expected = Categorical(logits=output.masked_fill(~legal, -torch.inf))
    torch.testing.assert_close(law[0].exp(), expected.probs)
    many = head.sample(head.law(output[:1].expand(5000, 4), legal=legal[:1]), torch.Generator().manual_seed(0))
    share = torch.bincount(many.action, minlength=4) / 5000
    assert share[1] == 0
    torch.testing.assert_close(share.double(), expected.probs[0].detach(), rtol=0, atol=0.03)
    action = torch.full((6,), 2)
    torch.testing.assert_close(head.logp(law, action), expected.log_prob(action))
    p = expected.probs
    torch.testing.assert_close(head.entropy(law), -torch.special.xlogy(p, p).sum(-1))
    (slope,) = torch.autograd.grad((head.logp(law, action) + head.entropy(law)).sum(), output)
    assert slope.isfinite().all()
    assert (slope[~legal] == 0).all()
    assert (slope[0][legal[0]] != 0).all()


def squashed(law: tuple[torch.Tensor, ...]) -> Any:
    low, high = torch.tensor(LOW, dtype=F64), torch.tensor(HIGH, dtype=F64)
    steps = [TanhTransform(), AffineTransform((low + high) / 2, (high - low) / 2, event_dim=1)]
    return TransformedDistribution(Independent(Normal(law[0], law[1].exp()), 1), steps)


def test_squashed_gaussian_density() -> None:
    head = SquashedGaussian(LOW, HIGH).double()
    law = head.law(outputs(4))
    acted = head.sample(law, torch.Generator().manual_seed(1))
    expected = squashed(law).log_prob(acted.action)
    torch.testing.assert_close(acted.logp, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(head.logp(law, acted.action), expected, rtol=1e-6, atol=1e-6)
    assert ((acted.action > torch.tensor(LOW)) & (acted.action < torch.tensor(HIGH))).all()
    with pytest.raises(HeadError, match="entropy of a squashed_gaussian head has no closed form; set"):
        head.entropy(law)


def test_squashed_density_far_from_the_middle() -> None:
    """In float32, where 1 - tanh(u)^2 is 0: the sample's log-density is still that of float64 mathematics."""
    head = SquashedGaussian([-1.0], [1.0])
    law = head.law(torch.tensor([[15.0, -5.0]]))
    acted = head.sample(law, torch.Generator().manual_seed(0))
    assert acted.action.item() == 1.0
    u = 15.0 + np.exp(-5.0) * torch.randn(1, 1, generator=torch.Generator().manual_seed(0)).item()
    correction = np.log(4.0) - 2 * u  # of log(1 - tanh^2), up to exp(-4u)
    assert acted.logp.item() == pytest.approx(stats.norm(15, np.exp(-5.0)).logpdf(u) - correction, rel=1e-4)


def test_beta_density_entropy_and_mode() -> None:
    head = Beta(LOW, HIGH).double()
    law = head.law(outputs(4))
    width = np.subtract(HIGH, LOW)
    expected = stats.beta(*(x.numpy() for x in law), loc=LOW, scale=width)
    acted = head.sample(law, torch.Generator().manual_seed(1))
    np.testing.assert_allclose(acted.logp, expected.logpdf(acted.action.numpy()).sum(-1), rtol=1e-9)
    np.testing.assert_allclose(head.entropy(law), expected.entropy().sum(-1), rtol=1e-9)
    peak = expected.logpdf(head.mode(law).numpy())
    for away in (-1e-3, 1e-3):
        assert (expected.logpdf(head.mode(law).numpy() + away) < peak).all()
    many = head.sample(tuple(x[:1].expand(20_000, 2) for x in law), torch.Generator().manual_seed(2)).action
    np.testing.assert_allclose(many.mean(0), expected.mean()[0], atol=0.02)
    np.testing.assert_allclose(many.std(0), expected.std()[0], rtol=0.03)


def test_dirichlet_density_entropy_and_mode() -> None:
    head = Dirichlet([0.0] * 3, [1.0] * 3).double()
    law = head.law(outputs(3))
    acted = head.sample(law, torch.Generator().manual_seed(1))
    for alpha, action, logp, entropy, mode in zip(
        law[0], acted.action, acted.logp, head.entropy(law), head.mode(law), strict=True
    ):
        expected = stats.dirichlet(alpha.numpy())
        assert logp.item() == pytest.approx(expected.logpdf(action.numpy()), rel=1e-9)
        assert entropy.item() == pytest.approx(expected.entropy(), rel=1e-9)
        for away in ([1e-3, -1e-3, 0], [0, 1e-3, -1e-3]):
            assert expected.logpdf(mode.numpy() + away) < expected.logpdf(mode.numpy())
    torch.testing.assert_close(head.logp(law, 7 * acted.action), acted.logp)
    torch.testing.assert_close(acted.action.sum(-1), torch.ones(len(acted.action), dtype=F64))
    for low, high in (([0.0], [1.0]), ([-1.0, 0.0], [1.0, 1.0]), ([0.0, 0.0], [2.0, 1.0])):
        with pytest.raises(HeadError, match="needs two shares or more"):
            Dirichlet(low, high)


def test_beta_samples_have_the_implicit_gradient() -> None:
    """dx/dalpha = -(dF/dalpha) / p(x), with F of scipy differenced."""
    head = Beta([0.0], [1.0]).double()
    law = tuple(torch.tensor([[v]], dtype=F64, requires_grad=True) for v in (2.5, 1.7))
    x = head.sample(law, torch.Generator().manual_seed(4)).action
    found = torch.autograd.grad(x.sum(), law)
    at, h = x.item(), 1e-5
    density = stats.beta(2.5, 1.7).pdf(at)
    ups = (special.betainc(2.5 + h, 1.7, at), special.betainc(2.5, 1.7 + h, at))
    downs = (special.betainc(2.5 - h, 1.7, at), special.betainc(2.5, 1.7 - h, at))
    for slope, up, down in zip(found, ups, downs, strict=True):
        assert slope.item() == pytest.approx(-(up - down) / (2 * h) / density, rel=5e-3)  # torch approximates it


@pytest.mark.parametrize("head", [None, *BOUNDED])
def test_proposals_have_the_gradient_of_their_own_noise(head: Any) -> None:
    """Finite differences in one weight, the generator's seed held; and the log-density is that of `evaluate`."""
    policy = policy_of(head)
    seen = outputs(3, rows=7)
    weight = policy.actor[-1].weight

    def objective() -> torch.Tensor:
        acted = policy.propose(seen, torch.Generator().manual_seed(8))
        return acted.action.square().sum() + acted.logp.sum()

    if head != "beta":  # its sampler's noise is not held by a seed when the law changes
        (slope,) = torch.autograd.grad(objective(), weight)
        with torch.no_grad():
            weight[0, 0] += 1e-6
            up = objective()
            weight[0, 0] -= 2e-6
            down = objective()
            weight[0, 0] += 1e-6
        assert slope[0, 0].item() == pytest.approx((up - down).item() / 2e-6, rel=1e-5)
    acted = policy.propose(seen, torch.Generator().manual_seed(8))
    assert acted.action.requires_grad
    extras = {"observation": torch.stack([seen, seen], 1), "action": acted.action[:, None]}
    batch = Experience(mask=torch.ones(7, 1, dtype=torch.bool), extras=extras)
    torch.testing.assert_close(policy.evaluate(batch).logp[:, 0], acted.logp, rtol=1e-5, atol=1e-5)
    if head == "deterministic":
        assert (acted.logp == 0).all()
        assert torch.equal(policy.act(seen, torch.Generator(), greedy=True).action, acted.action)


def test_refusals() -> None:
    with pytest.raises(HeadError, match="samples of a categorical head have no gradient; take"):
        NetworkPolicy(observations=2, actions=2).propose(torch.zeros(1, 2), torch.Generator())
    with pytest.raises(HeadError, match="head = 'beta' does not fit the environment's actions, 2 choices; set it to c"):
        NetworkPolicy(observations=2, actions=2, head="beta")
    with pytest.raises(HeadError, match="'categorical' does not fit the environment's actions, a box; set it to gauss"):
        NetworkPolicy(observations=2, dimensions=2, head="categorical")
    with pytest.raises(HeadError, match=r"'beta' needs an action space with finite bounds, found \[-inf\] to \[inf\]"):
        NetworkPolicy(observations=2, dimensions=1, head="beta")


@pytest.mark.parametrize("head", [None, *BOUNDED])
def test_saved_with_head_and_statistics(tmp_path: Path, head: Any) -> None:
    policy = policy_of(head, normalise=True)
    policy.normaliser.observe(outputs(3, rows=50))
    policy.normaliser.advance()
    policy.float().save(tmp_path)
    again, seen = NetworkPolicy.load(tmp_path), outputs(3).float()
    assert again.settings == policy.settings
    assert torch.equal(again.normaliser.scale, policy.normaliser.scale)
    for greedy in (True, False):
        found, expected = (p.act(seen, torch.Generator().manual_seed(1), greedy=greedy) for p in (again, policy))
        assert torch.equal(found.action, expected.action)
        assert torch.equal(found.logp, expected.logp)


def test_normaliser_is_numpys_mean_and_variance_of_everything() -> None:
    normaliser = ObservationNormaliser(3)
    g = torch.Generator().manual_seed(0)
    batches = [1e3 + 5 * torch.randn(n, 3, generator=g) for n in (1, 17, 0, 400)]
    seen = np.concatenate([b.double().numpy() for b in batches])
    probe = torch.tensor([[1000.0, 1003.0, 2000.0]])
    assert torch.equal(normaliser(torch.zeros(1, 3)), torch.zeros(1, 3))
    for batch in batches:
        normaliser.observe(batch)
    torch.testing.assert_close(normaliser(probe), probe.clamp(max=LIMIT))  # until it advances, as before
    normaliser.advance()
    assert normaliser.count == len(seen)
    np.testing.assert_allclose(normaliser.mean, seen.mean(0), rtol=1e-13)
    np.testing.assert_allclose(normaliser.squares / normaliser.count, seen.var(0), rtol=1e-10)
    expected = np.clip((probe.numpy() - seen.mean(0)) / np.sqrt(seen.var(0) + 1e-8), -LIMIT, LIMIT)
    np.testing.assert_allclose(normaliser(probe), expected, atol=1e-4)
    assert expected[0, 2] == LIMIT
