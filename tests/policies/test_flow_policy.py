"""The flow policy against normal distributions whose flow is known in closed form."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.policies.flow import FlowPolicy
from polopt.support import Density

MEAN, STD = torch.tensor([1.5, -0.5], dtype=torch.double), 0.4


class NormalFlow(FlowPolicy):
    """The exact flow of points from N(MEAN, STD^2 I)."""

    def velocity(self, x: Tensor, level: Tensor, context: Tensor) -> Tensor:
        t = level[..., None]
        # x_t = (1 - t) x + t e; point and noise given x_t are jointly normal.
        share = (x - (1 - t) * MEAN) / ((1 - t) ** 2 * STD**2 + t**2)
        return t * share - (MEAN + (1 - t) * STD**2 * share)


def exact(steps: int = 10, solver: str = "midpoint") -> NormalFlow:
    return NormalFlow(dimensions=2, hidden=(4,), steps=steps, solver=solver).double()  # type: ignore[arg-type]


def batch_of(rows: int = 6, draws: int = 4, contexts: int = 3) -> Experience:
    draw = torch.Generator().manual_seed(0)
    normal = lambda *shape: torch.randn(*shape, generator=draw, dtype=torch.double)  # noqa: E731
    extras = {
        "point": normal(rows, 2),
        "context": torch.arange(rows) % contexts,
        "noise": normal(rows, draws, 2),
        "noise_level": torch.rand(rows, draws, generator=draw, dtype=torch.double),
    }
    return Experience(mask=torch.ones(rows, draws, dtype=torch.bool), support=Density(), extras=extras)


def test_logp_is_the_normal_density_of_the_velocity() -> None:
    policy, batch = FlowPolicy(dimensions=2, contexts=3, hidden=(8,), seed=1).double(), batch_of()
    found = policy.evaluate(batch, frozenset({"extras.velocity"}))
    for row in range(len(batch)):
        for t in range(batch.mask.shape[1]):
            point, noise = batch.extras["point"][row], batch.extras["noise"][row, t]
            level = batch.extras["noise_level"][row, t]
            x = (1 - level) * point + level * noise
            v = policy.velocity(x[None], level[None], batch.extras["context"][row][None])[0]
            assert torch.allclose(found.extras["velocity"][row, t], v, atol=1e-12)
            law = torch.distributions.MultivariateNormal(v, torch.eye(2, dtype=torch.double))
            assert found.logp[row, t].item() == pytest.approx(law.log_prob(noise - point).item(), abs=1e-12)


def test_contexts_and_levels_are_read() -> None:
    policy = FlowPolicy(dimensions=2, contexts=3, hidden=(8,), seed=1)
    x, level, context = torch.ones(1, 2), torch.tensor([0.3]), torch.tensor([0])
    here = policy.velocity(x, level, context)
    assert not torch.allclose(here, policy.velocity(x, level, context + 1))
    assert not torch.allclose(here, policy.velocity(x, level + 0.1, context))


@pytest.mark.parametrize("sigma", [0.1, 1.0, 10.0])
def test_the_denoiser_is_the_posterior_mean(sigma: float) -> None:
    x = torch.tensor([[0.3, 0.7], [2.0, -1.0]], dtype=torch.double)
    found = exact().denoised(x, torch.full((2,), sigma, dtype=torch.double), torch.zeros(2, dtype=torch.long))
    expected = (STD**2 * x + sigma**2 * MEAN) / (STD**2 + sigma**2)
    assert torch.allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize(("solver", "order"), [("euler", 1), ("midpoint", 2)])
def test_samples_come_from_the_flow_with_the_solvers_order(solver: str, order: int) -> None:
    """The exact solution maps noise e to MEAN + STD e."""
    errors = []
    for steps in (20, 40):
        policy = exact(steps, solver)
        start = torch.randn(500, 2, generator=torch.Generator().manual_seed(3)).double()
        found = policy.sample(torch.zeros(500, dtype=torch.long), torch.Generator().manual_seed(3))
        errors.append((found - (MEAN + STD * start)).abs().max().item())
    assert errors[1] < 0.1
    assert math.log2(errors[0] / errors[1]) > order - 0.25
    assert order == 2 or math.log2(errors[0] / errors[1]) < 1.25


def test_other_weights_are_there_for_a_while_only() -> None:
    one, other = FlowPolicy(dimensions=2, hidden=(4,), seed=1), FlowPolicy(dimensions=2, hidden=(4,), seed=2)
    own, batch = one.weights(), batch_of(contexts=1)
    batch = batch.replace(extras={k: v.float() for k, v in batch.extras.items() if v.is_floating_point()})
    with one.using(other.weights()):
        assert torch.equal(one.evaluate(batch).logp, other.evaluate(batch).logp)
    assert torch.equal(one.weights(), own)
    with pytest.raises(RuntimeError, match="inside"), one.using(other.weights()):
        raise RuntimeError("inside")
    assert torch.equal(one.weights(), own)


def test_saved_and_loaded(tmp_path: Path) -> None:
    policy = FlowPolicy(dimensions=3, contexts=2, hidden=(5, 4), steps=3, solver="euler", seed=7)
    policy.save(tmp_path)
    again = FlowPolicy.load(tmp_path)
    assert again.settings == policy.settings
    assert torch.equal(again.weights(), policy.weights())


def test_it_needs_dimensions() -> None:
    with pytest.raises(ValueError, match="dimensions, contexts and steps must be >= 1"):
        FlowPolicy(dimensions=0)
