"""Diagnostics against independent computation: other formulas, enumeration, simulation of what is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from polopt.metrics import (
    audit_verifier,
    average_precision,
    balanced_accuracy,
    clopper_pearson,
    fit_sigmoid,
    mixed_groups,
    reward_parting,
    route,
    router_regret,
    wilson,
)

# Groups ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_mixed_groups_by_hand(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    group, outcome = torch.randint(0, 9, (30,), generator=g) * 7, torch.randint(0, 2, (30,), generator=g).float()
    sets: dict[int, set[float]] = {}
    for number, value in zip(group.tolist(), outcome.tolist(), strict=True):
        sets.setdefault(number, set()).add(value)
    expected = sum(len(s) > 1 for s in sets.values()) / len(sets)
    assert float(mixed_groups(outcome, group)) == pytest.approx(expected, abs=1e-15)
    assert 0 < expected < 1


def test_groups_that_cannot_be_mixed() -> None:
    assert float(mixed_groups(torch.tensor([0.0, 1.0]), torch.tensor([3, 4]))) == 0
    assert math.isnan(float(mixed_groups(torch.zeros(0), torch.zeros(0, dtype=torch.long))))


# Verifiers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("s", "n"), [(0, 7), (7, 7), (2, 9), (40, 100), (1, 1)])
def test_clopper_pearson_turns_the_binomial_round(s: int, n: int) -> None:
    """At the ends, s or more, and s or fewer, are exactly as likely as the tails."""
    found = clopper_pearson(s, n, 0.9)
    if s > 0:
        assert stats.binom.sf(s - 1, n, found.low) == pytest.approx(0.05, rel=1e-9)
    else:
        assert found.low == 0
    if s < n:
        assert stats.binom.cdf(s, n, found.high) == pytest.approx(0.05, rel=1e-9)
    else:
        assert found.high == 1
    assert found.low <= found.estimate <= found.high


def test_clopper_pearson_covers_and_wilson_does_on_average() -> None:
    """Coverage by enumeration over all counts, for many rates."""
    n, covered = 20, {clopper_pearson: [], wilson: []}
    for p in np.linspace(0.02, 0.98, 97):
        odds = stats.binom.pmf(np.arange(n + 1), n, p)
        for interval, found in covered.items():
            ends = [interval(s, n) for s in range(n + 1)]
            found.append(sum(w for w, i in zip(odds, ends, strict=True) if i.low <= p <= i.high))
    assert min(covered[clopper_pearson]) >= 0.95
    assert min(covered[wilson]) < 0.95
    assert np.mean(covered[wilson]) == pytest.approx(0.95, abs=0.01)


def test_an_audit_counts_each_error_among_its_own() -> None:
    truth = np.array([1] * 8 + [0] * 5)
    verdict = np.array([1, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0])
    order = np.random.default_rng(0).permutation(13)
    found = audit_verifier(verdict[order], truth[order])
    assert found.false_negative == wilson(3, 8)
    assert found.false_positive == wilson(1, 5)
    assert found.accepted == wilson(6, 13)
    exact = audit_verifier(verdict, truth, 0.9, clopper_pearson)
    assert exact.false_negative == clopper_pearson(3, 8, 0.9)
    assert audit_verifier([1, 0], [1, 1]).false_positive is None
    with pytest.raises(ValueError, match="threshold"):
        audit_verifier([0.3], [1])
    with pytest.raises(ValueError, match=r"found \[2\] and \[1\]"):
        audit_verifier([0, 1], [1])


# Reward hacking -------------------------------------------------------------------------------------------------


def curves(seed: int, noise: float, bend: int | None, fall: float = 0.02, n: int = 40) -> tuple[np.ndarray, ...]:
    """A proxy that saturates in another unit than the truth, which follows it up to the bend."""
    rng, x = np.random.default_rng(seed), np.arange(n)
    proxy = 3 * (1 - np.exp(-x / 30))
    truth = 0.1 + 0.25 * proxy
    if bend is not None:
        truth = truth - fall * np.maximum(x - bend, 0)
    return x, proxy + noise * rng.standard_normal(n), truth + noise * rng.standard_normal(n)


def test_the_bend_of_exact_curves_is_found_exactly() -> None:
    found = reward_parting(*curves(0, 0.0, 17))
    assert (found.step.estimate, found.step.low, found.step.high) == (17, 16, 18)
    assert found.drift.estimate == pytest.approx(-0.02, rel=1e-9)
    assert found.parts
    assert found.hacked
    slower = reward_parting(*curves(0, 0.0, 17, fall=0.004))
    assert slower.parts  # behind the proxy, and still rising
    assert not slower.hacked
    assert slower.truth.estimate > 0


def test_the_interval_covers_the_bend_and_alarms_are_rare() -> None:
    covered = sum(
        found.step.low <= 17 <= found.step.high and found.hacked
        for found in (reward_parting(*curves(seed, 0.02, 17)) for seed in range(60))
    )
    false = sum(reward_parting(*curves(seed, 0.02, None)).parts for seed in range(200))
    assert covered >= 50
    assert false <= 16  # 5 % of 200 would be 10; 16 is two standard deviations above


def test_slopes_are_those_of_another_program() -> None:
    x, proxy, truth = curves(3, 0.05, 15)
    found = reward_parting(x, proxy, truth)
    after = x >= found.step.estimate
    for mine, y in ((found.proxy, proxy), (found.truth, truth)):
        line = stats.linregress(x[after], y[after])
        half = stats.t.ppf(0.975, after.sum() - 2) * line.stderr
        assert mine.estimate == pytest.approx(line.slope, rel=1e-8)
        assert mine.high - mine.estimate == pytest.approx(half, rel=1e-8)


def test_curves_that_say_nothing_are_refused() -> None:
    x, proxy, truth = curves(0, 0.1, 10)
    with pytest.raises(ValueError, match="n >= 8"):
        reward_parting(x[:7], proxy[:7], truth[:7])
    with pytest.raises(ValueError, match="increase"):
        reward_parting(x[::-1], proxy, truth)
    assert not reward_parting(x, np.ones(40), truth).parts  # the proxy does not rise


# Classification -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_balanced_accuracy_is_the_mean_recall(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth, said = rng.choice(3, 60, p=[0.8, 0.15, 0.05]), rng.integers(-1, 3, 60)
    recalls = [np.mean([s == t for s, t in zip(said, truth, strict=True) if t == k]) for k in set(truth.tolist())]
    assert balanced_accuracy(said, truth) == pytest.approx(np.mean(recalls), rel=1e-12)
    assert balanced_accuracy(np.zeros(60, int), truth) == pytest.approx(1 / len(set(truth.tolist())), rel=1e-12)
    assert math.isnan(balanced_accuracy([], []))


@pytest.mark.parametrize("seed", range(4))
def test_average_precision_by_thresholds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth, score = (rng.random(50) < 0.2).astype(float), rng.integers(0, 12, 50) / 4  # many are level
    before, total = 0.0, 0.0
    for threshold in sorted(set(score), reverse=True):
        taken = score >= threshold
        recall, precision = truth[taken].sum() / truth.sum(), truth[taken].mean()
        total += (recall - before) * precision
        before = recall
    assert average_precision(score, truth) == pytest.approx(total, rel=1e-12)
    assert average_precision(truth, truth) == 1
    assert average_precision(np.zeros(50), truth) == pytest.approx(truth.mean(), rel=1e-12)
    assert math.isnan(average_precision([0.1], [0]))


# Scaling --------------------------------------------------------------------------------------------------------


def hill(c: np.ndarray, start: float, most: float, half: float, steepness: float) -> np.ndarray:
    return start + (most - start) / (1 + (half / c) ** steepness)


@pytest.mark.parametrize("numbers", [(0.3, 0.9, 500.0, 1.2), (0.5, 0.7, 30.0, 3.0), (0.9, 0.2, 200.0, 0.8)])
def test_exact_points_give_their_curve_back(numbers: tuple[float, float, float, float]) -> None:
    compute = np.geomspace(1, 1e5, 12)
    found = fit_sigmoid(compute, hill(compute, *numbers))
    estimates = [i.estimate for i in (found.start, found.most, found.half, found.steepness)]
    np.testing.assert_allclose(estimates, numbers, rtol=1e-4)
    assert found.error < 1e-6
    ahead = np.array([1e6, 1e7])
    np.testing.assert_allclose(found(ahead), hill(ahead, *numbers), rtol=1e-5)


def test_the_intervals_cover_and_open_where_the_bend_is_out_of_sight() -> None:
    rng, covered = np.random.default_rng(0), 0
    compute = np.geomspace(10, 1e5, 14)
    for _ in range(30):
        found = fit_sigmoid(compute, hill(compute, 0.3, 0.9, 800.0, 1.2) + 0.01 * rng.standard_normal(14))
        covered += found.most.low <= 0.9 <= found.most.high
    assert covered >= 25
    early = np.geomspace(10, 4000, 14)
    blind = fit_sigmoid(early, hill(early, 0.3, 0.9, 8000.0, 1.2) + 0.01 * rng.standard_normal(14))
    assert blind.most.high - blind.most.low > 0.5


def test_points_without_a_curve_are_refused() -> None:
    with pytest.raises(ValueError, match="n >= 5"):
        fit_sigmoid([1, 2, 3, 4], [0, 0, 0, 0])
    with pytest.raises(ValueError, match="3 different"):
        fit_sigmoid([1, 1, 2, 2, 3, 3], np.zeros(6))
    with pytest.raises(ValueError, match="positive"):
        fit_sigmoid([0, 1, 2, 3, 4], np.zeros(5))


# Routing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [0.0, 0.3, 100.0])
def test_route_by_hand(weight: float) -> None:
    chance = torch.rand(4, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    cost = torch.tensor([0.1, 1.0, 0.5, 0.3], dtype=torch.float64)
    chosen = route(chance, cost, weight)
    lost = 0.0
    for x in range(30):
        worth = [float(chance[m, x] - weight * cost[m]) for m in range(4)]
        assert worth[int(chosen[x])] == max(worth)
        lost += float(chance[:, x].max() - chance[int(chosen[x]), x]) / 30
    assert float(router_regret(chance, chosen)) == pytest.approx(lost, rel=1e-12)
    assert torch.equal(route(chance, cost[:, None].expand(4, 30), weight), chosen)
    assert (lost == 0) == (weight == 0)
    with pytest.raises(ValueError, match="route: chance"):
        route(chance[0], cost)
