import math

import numpy as np
import pytest

from polopt.metrics import gradient_noise


def test_inverts_the_expected_squares():
    # |G|^2 = 9, tr = 40: expected squares 9 + 40/4 = 19 and 9 + 40/16 = 11.5.
    got = gradient_noise(19.0, 11.5, small=4, big=16)
    assert (got.signal, got.noise) == pytest.approx((9, 40))
    assert got.scale == pytest.approx(40 / 9)


def test_unbiased_on_a_gaussian_of_known_mean_and_trace():
    generator = np.random.default_rng(0)
    mean, deviation = np.array([0.5, -1.0, 0.2]), np.array([1.0, 2.0, 0.5])
    steps = []
    for _ in range(4000):
        examples = mean + deviation * generator.normal(size=(4, 8, 3))  # 4 micro-batches of 8
        small = (examples.mean(1) ** 2).sum(-1).mean()
        big = (examples.mean((0, 1)) ** 2).sum()
        steps.append(gradient_noise(small, big, small=8, big=32)[:])
    got, error = np.mean(steps, 0), np.std(steps, 0) / math.sqrt(len(steps))
    truth = np.array([(mean**2).sum(), (deviation**2).sum()])
    assert (np.abs(got - truth) < 4 * error).all(), (got, truth, error)
    assert (error < 0.02 * truth).all(), "tight enough to notice a wrong constant"


def test_no_signal_has_no_scale():
    assert math.isnan(gradient_noise(10.0, 1.0, small=1, big=2).scale)


@pytest.mark.parametrize(("small", "big"), [(8, 8), (0, 4), (9, 3)])
def test_batches_must_differ(small, big):
    with pytest.raises(ValueError, match=f"found {small} and {big}"):
        gradient_noise(1.0, 1.0, small=small, big=big)
