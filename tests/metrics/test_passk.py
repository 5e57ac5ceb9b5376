import itertools

import numpy as np
import pytest

from polopt.metrics import CapabilityFlow, capability_flow, pass_all_k, pass_at_k


@pytest.mark.parametrize(("formula", "of_subset"), [(pass_at_k, any), (pass_all_k, all)])
def test_equals_the_mean_over_every_subset(formula, of_subset):
    cases = [(n, c, k) for n in range(1, 9) for c in range(n + 1) for k in range(1, n + 1)]
    for k in range(1, 9):
        mine = [(n, c) for n, c, kk in cases if kk == k]
        got = formula([n for n, _ in mine], [c for _, c in mine], k)
        for (n, c), value in zip(mine, got, strict=True):
            right = [True] * c + [False] * (n - c)
            subsets = [of_subset(s) for s in itertools.combinations(right, k)]
            assert abs(value - sum(subsets) / len(subsets)) < 1e-12, (n, c, k)


def test_hand_worked():
    # n = 4, c = 2, k = 2: of 6 pairs one misses both and one holds both.
    assert pass_at_k(4, 2, 2) == pytest.approx(5 / 6, abs=1e-15)
    assert pass_all_k(4, 2, 2) == pytest.approx(1 / 6, abs=1e-15)


def test_large_counts_neither_overflow_nor_cancel():
    # C(100000, 1000) has 2,430 digits. One right in n: exactly k / n, however small.
    assert pass_at_k(100_000, 1, 1000) == pytest.approx(0.01, rel=1e-12)
    assert pass_at_k(10**12, 1, 1) == pytest.approx(1e-12, rel=1e-12)
    assert np.signbit(pass_at_k(5, 0, 3)) == np.False_


@pytest.mark.parametrize("formula", [pass_at_k, pass_all_k])
def test_refuses_what_cannot_be_estimated(formula):
    with pytest.raises(ValueError, match="fewest samples of a problem, 3; found k = 4"):
        formula([8, 3], [1, 1], 4)
    with pytest.raises(ValueError, match="found 5 of 3"):
        formula([8, 3], [1, 5], 1)


def test_capability_flow_over_all_pairs_of_attempts() -> None:
    """Shares of estimates are means over every choice of k attempts of either policy."""
    first, second = ((1, 0, 0), (1, 1, 0), (0, 0, 0)), ((0, 1, 0, 1), (0, 0, 0, 0), (1, 0, 0, 0))
    pairs = [
        [(any(a), any(b)) for a in itertools.combinations(one, 2) for b in itertools.combinations(other, 2)]
        for one, other in zip(first, second, strict=True)
    ]
    expected = [
        np.mean([np.mean([pair == kind for pair in found]) for found in pairs])
        for kind in ((False, True), (True, True), (True, False), (False, False))
    ]
    chances = pass_at_k(3, [1, 2, 0], 2), pass_at_k(4, [2, 0, 1], 2)
    assert capability_flow(*chances) == pytest.approx(expected)
    flow = capability_flow([True, True, False, False], [True, False, True, False])
    assert flow == CapabilityFlow(0.25, 0.25, 0.25, 0.25)


@pytest.mark.parametrize(("before", "after"), [([], []), ([0.5], [0.5, 0.5]), ([1.5], [0.0]), ([[0.5]], [[0.5]])])
def test_capability_flow_of_what_is_no_chance_is_refused(before: list[float], after: list[float]) -> None:
    with pytest.raises(ValueError, match="capability_flow"):
        capability_flow(before, after)
