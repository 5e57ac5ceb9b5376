"""R = b - a e^H, and what moves H."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from polopt.metrics import entropy_law, entropy_shift


def test_finds_the_law_behind_the_pairs() -> None:
    entropy = [2.0, 1.4, 0.9, 0.3]
    found = entropy_law(entropy, [0.8 - 0.05 * math.exp(h) for h in entropy])
    assert found == pytest.approx((0.05, 0.8, 1.0))
    assert found.ceiling == pytest.approx(0.75)
    assert found.reward(math.log(2)) == pytest.approx(0.7)


def test_agrees_with_numpy_on_noisy_pairs() -> None:
    random = np.random.default_rng(0)
    entropy = random.uniform(0, 3, 50)
    reward = 0.9 - 0.03 * np.exp(entropy) + 0.05 * random.normal(size=50)
    slope, intercept = np.polyfit(np.exp(entropy), reward, 1)
    found = entropy_law(entropy.tolist(), reward.tolist())
    r = np.corrcoef(np.exp(entropy), reward)[0, 1]
    assert found == pytest.approx((-slope, intercept, r**2))


@pytest.mark.parametrize(("entropy", "reward"), [([1.0], [0.5]), ([1.0, 1.0], [0.5, 0.6]), ([1.0, 2.0], [0.5])])
def test_pairs_must_differ(entropy: list[float], reward: list[float]) -> None:
    with pytest.raises(ValueError, match="entropy_law: needs pairs"):
        entropy_law(entropy, reward)


def test_shift_is_the_derivative_of_the_entropy() -> None:
    random = torch.Generator().manual_seed(0)
    logits, step = (torch.randn(6, 9, generator=random, dtype=torch.float64) for _ in range(2))
    logits.requires_grad_()
    logp = logits.log_softmax(-1)
    (slope,) = torch.autograd.grad(-(logp.exp() * logp).sum(), logits)
    torch.testing.assert_close(entropy_shift(logp.detach(), step), (slope * step).sum(-1), atol=1e-12, rtol=0)


def test_shift_where_a_choice_is_impossible() -> None:
    logp = torch.tensor([[math.log(0.25), math.log(0.75), -math.inf]])
    expected = -sum(p * math.log(p) * (s - 1.75) for p, s in ((0.25, 1.0), (0.75, 2.0)))
    assert entropy_shift(logp, torch.tensor([[1.0, 2.0, 5.0]])).item() == pytest.approx(expected, rel=1e-5)
