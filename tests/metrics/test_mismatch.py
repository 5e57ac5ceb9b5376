import math

import pytest
import torch

from polopt.metrics import effective_sample_size, logp_mismatch


def test_closed_form_by_hand():
    # Log-ratios learner - sampler: row 0: ln 2, ln 1/2; row 1: ln 4. Masked places hold NaN and infinity.
    gap = torch.tensor([[2.0, 0.5, 1.0], [4.0, 1.0, 1.0]]).log()
    sampler = torch.tensor([[-1.0, -2.0, torch.nan], [-3.0, -torch.inf, 7.0]])
    learner = torch.where(sampler.isfinite(), sampler + gap, torch.nan)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    got = logp_mismatch(sampler, learner, mask)
    ln2 = math.log(2)
    assert got.mean.item() == pytest.approx(4 * ln2 / 3, rel=1e-6)
    assert got.max.item() == pytest.approx(2 * ln2, rel=1e-6)
    assert got.k1.item() == pytest.approx(-2 * ln2 / 3, rel=1e-6)
    # k3 terms r - 1 - ln r: (1 - ln2), (-1/2 + ln2), (3 - 2 ln2).
    assert got.k3.item() == pytest.approx((3.5 - 2 * ln2) / 3, rel=1e-6)
    # Token weights 2, 1/2, 4: 6.5^2 / (3 * 20.25). Row weights 1, 4: 5^2 / (2 * 17).
    assert got.ess_token.item() == pytest.approx(42.25 / 60.75, rel=1e-6)
    assert got.ess_sequence.item() == pytest.approx(25 / 34, rel=1e-6)


def test_both_estimators_are_kl_of_sampler_from_learner():
    sampler = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    learner = torch.tensor([0.4, 0.4, 0.2], dtype=torch.float64)
    # Each action occurs exactly as often as the sampler draws it, so the mean is the expectation.
    actions = torch.tensor([0] * 5 + [1] * 3 + [2] * 2)
    mask = torch.ones(10, 1, dtype=torch.bool)
    got = logp_mismatch(sampler.log()[actions, None], learner.log()[actions, None], mask)
    kl = (sampler * (sampler / learner).log()).sum().item()
    assert got.k1.item() == pytest.approx(kl, rel=1e-12)
    assert got.k3.item() == pytest.approx(kl, rel=1e-12)
    # E w = 1, so the share is 1 / E w^2.
    assert got.ess_token.item() == pytest.approx(1 / (learner**2 / sampler).sum().item(), rel=1e-12)


def test_agreement_is_zero_and_full_size():
    logp = torch.randn(3, 4)
    got = logp_mismatch(logp, logp, torch.ones(3, 4, dtype=torch.bool))
    assert [v.item() for v in got] == pytest.approx([0, 0, 0, 0, 1, 1])


def test_effective_sample_size_at_any_scale():
    assert effective_sample_size(torch.tensor([900.0, 900.0, -900.0])).item() == pytest.approx(2 / 3)


def test_nothing_measured_is_nan_and_shapes_are_checked():
    logp = torch.zeros(2, 3)
    assert all(v.isnan() for v in logp_mismatch(logp, logp, torch.zeros(2, 3, dtype=torch.bool)))
    with pytest.raises(ValueError, match=r"one shape \[B, T\], found \[2, 3\], \[2, 3\] and \[2\]"):
        logp_mismatch(logp, logp, torch.ones(2, dtype=torch.bool))
