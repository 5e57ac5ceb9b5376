"""Couplings against loops and listed permutations, transferred labels by hand, and losses against draws."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import torch

import polopt as po
from polopt.problems import PreferenceTransfer, TransferError, find, preference_transfer
from polopt.solvers import (
    GaussianTransferReward,
    GromovWasserstein,
    IndependentCoupling,
    PreferenceTransferSolver,
    TransferReward,
    WeightedImitation,
    gromov_wasserstein_cost,
    gromov_wasserstein_gradient,
    sinkhorn,
    transferred_labels,
)


def two_sets(N: int = 4, M: int = 5, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Distances of two random sets of points, and a coupling of them with uniform marginals."""
    g = torch.Generator().manual_seed(seed)
    one, other = (torch.randn(n, 3, generator=g, dtype=torch.double) for n in (N, M))
    coupling = sinkhorn(torch.randn(N, M, generator=g, dtype=torch.double), 500).exp()
    return torch.cdist(one, one), torch.cdist(other, other), coupling


def coupled(source: torch.Tensor, target: torch.Tensor, steps: int = 80, **settings: float) -> torch.Tensor:
    part = GromovWasserstein(**settings)
    found = part.start(source, target)
    for _ in range(steps):
        found = part(source, target, found)
    return found[part.cost(source, target, found).argmin()].exp()


def test_cost_and_gradient_are_those_of_loops() -> None:
    C, D, T = two_sets()
    cost, gradient = 0.0, torch.zeros_like(T)
    for i, j, k, m in itertools.product(range(4), range(5), range(4), range(5)):
        gap = float((C[i, k] - D[j, m]) ** 2)
        cost += gap * float(T[i, j] * T[k, m])
        gradient[i, j] += gap * T[k, m]
    torch.testing.assert_close(gromov_wasserstein_gradient(C, D, T), gradient, rtol=0, atol=1e-10)
    assert float(gromov_wasserstein_cost(C, D, T)) == pytest.approx(cost, abs=1e-10)


def test_sinkhorn_is_the_scaled_kernel() -> None:
    logits = two_sets()[2].log() * 3
    found = sinkhorn(logits, 500).exp()
    torch.testing.assert_close(found.sum(0), torch.full((5,), 0.2, dtype=torch.double))
    torch.testing.assert_close(found.sum(1), torch.full((4,), 0.25, dtype=torch.double))
    # log found - logits is a sum of a row's and a column's number.
    ratio = found.log() - logits
    cross = ratio[:, None, :, None] - ratio[None, :, :, None] - ratio[:, None, None] + ratio[None, :, None]
    assert cross.abs().max() < 1e-9


@pytest.mark.parametrize("mirror", [1.0, -1.0])
def test_an_isometric_copy_is_found_also_as_a_mirror_image(mirror: float) -> None:
    g = torch.Generator().manual_seed(3)
    points, order = torch.randn(7, 2, generator=g, dtype=torch.double), torch.randperm(7, generator=g)
    C = torch.cdist(points, points)
    flipped = points[order] * torch.tensor([1.0, mirror], dtype=torch.double)
    found = coupled(C, torch.cdist(flipped, flipped)) * 7
    torch.testing.assert_close(found[order, torch.arange(7)], torch.ones(7, dtype=torch.double), rtol=0, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_with_noise_it_is_the_cheapest_permutation(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    points = torch.randn(6, 3, generator=g, dtype=torch.double)
    moved = points[torch.randperm(6, generator=g)] + 0.2 * torch.randn(6, 3, generator=g, dtype=torch.double)
    C, D = torch.cdist(points, points), torch.cdist(moved, moved)
    costs = {order: float((C - D[order, :][:, order]).square().mean()) for order in itertools.permutations(range(6))}
    best = min(costs, key=costs.__getitem__)
    found = coupled(C, D)
    assert float(gromov_wasserstein_cost(C, D, found)) <= costs[best] + 1e-9
    assert found.argmax(1).tolist() == list(best)


def test_an_entropy_leaves_the_coupling_spread() -> None:
    C, D, _ = two_sets(6, 6)
    sharp, spread = (coupled(C, D, eps=0.05, steps=200, proximal=p) for p in (True, False))
    sizes = [float(-(T * (6 * T).clamp(min=1e-300).log()).sum()) for T in (sharp, spread)]
    assert sizes[0] < 1e-3
    assert sizes[1] > 0.1
    for T in (sharp, spread):
        torch.testing.assert_close(T.sum(0), torch.full((6,), 1 / 6, dtype=torch.double))


def test_costs_are_no_higher_than_pots() -> None:
    ot = pytest.importorskip("ot")
    C, D, _ = two_sets(6, 6, seed=5)
    plan = ot.gromov.gromov_wasserstein(C.numpy(), D.numpy(), np.full(6, 1 / 6), np.full(6, 1 / 6))
    theirs = float(gromov_wasserstein_cost(C, D, torch.from_numpy(plan)))
    assert float(gromov_wasserstein_cost(C, D, coupled(C, D))) <= theirs + 1e-9


def test_labels_are_those_of_loops() -> None:
    T = two_sets(4, 5)[2]
    g = torch.Generator().manual_seed(1)
    upper = torch.rand(4, 4, generator=g, dtype=torch.double).triu(1)
    labels = upper + (1 - upper).triu(1).T
    labels[0, 2] = labels[2, 0] = torch.nan
    known = ~labels.isnan() & ~torch.eye(4, dtype=torch.bool)
    found = transferred_labels(T.log(), labels, known)
    for j, m in itertools.product(range(5), repeat=2):
        total = weight = 0.0
        for i, k in itertools.product(range(4), repeat=2):
            if i != k and {i, k} != {0, 2}:
                total += float(T[i, j] * T[k, m] * labels[i, k])
                weight += float(T[i, j] * T[k, m])
        assert float(found[j, m]) == pytest.approx(total / weight, abs=1e-12)
    torch.testing.assert_close(found + found.T, torch.ones(5, 5, dtype=torch.double))


def test_an_undivided_sum_would_hide_the_preference() -> None:
    """Three trajectories, coupled each with itself: the sum over pairs is 1/9 where the label is 1."""
    labels = torch.ones(3, 3, dtype=torch.double).triu(1)
    T = torch.eye(3, dtype=torch.double) / 3
    assert float((T.T @ labels @ T)[0, 1]) == pytest.approx(1 / 9)
    known = ~torch.eye(3, dtype=torch.bool)
    found = transferred_labels(T.log(), labels, known)
    assert (found[0, 1], found[2, 0]) == (1.0, 0.0)
    # A pair without any weight is not decided.
    known[0, 1] = known[1, 0] = False
    assert transferred_labels(T.log(), labels, known)[0, 1] == 0.5


def fitted(reward: TransferReward, steps: torch.Tensor, labels: torch.Tensor, seed: int = 0) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    start = reward.start(steps)
    return start + 0.5 * torch.randn(start.shape, generator=g, dtype=torch.double)


def data() -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(2)
    upper = torch.rand(5, 5, generator=g, dtype=torch.double).triu(1)
    return torch.randn(5, 3, 2, generator=g, dtype=torch.double), upper + (1 - upper).triu(1).T


def test_without_uncertainty_it_is_the_cross_entropy_of_soft_labels() -> None:
    steps, labels = data()
    reward = TransferReward()
    theta = fitted(reward, steps, labels)
    value = [float((steps[j] @ theta).sum()) for j in range(5)]
    pairs = list(itertools.combinations(range(5), 2))
    margins = torch.tensor([value[j] - value[k] for j, k in pairs], dtype=torch.double)
    target = torch.stack([labels[j, k] for j, k in pairs])
    expected = torch.nn.functional.binary_cross_entropy_with_logits(margins, target)
    torch.testing.assert_close(reward.loss(steps, labels, theta), expected)


def test_an_uncertain_reward_without_spread_is_the_plain_one() -> None:
    steps, labels = data()
    theta = fitted(TransferReward(), steps, labels)
    plain = TransferReward().loss(steps, labels, theta)
    for reward, log_std in ((GaussianTransferReward(lam=0.0), -18.0), (GaussianTransferReward(lam=0.0, nodes=1), 0.7)):
        both = torch.cat([theta, torch.tensor([0.0, 0.0, log_std], dtype=torch.double)])
        torch.testing.assert_close(reward.loss(steps, labels, both), plain, rtol=0, atol=1e-7)


def test_the_uncertain_loss_is_the_mean_over_draws() -> None:
    steps, labels = data()
    reward = GaussianTransferReward(lam=0.3, eta=2.0)
    theta = fitted(reward, steps, labels)
    mean, std = steps @ theta[:2], (steps @ theta[2:4] + theta[4]).exp()
    draws = mean + std * torch.randn(40_000, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    j, k = torch.triu_indices(5, 5, 1)
    total = draws.sum(2)
    each = torch.nn.functional.binary_cross_entropy_with_logits(
        total[:, j] - total[:, k], labels[j, k].expand(40_000, -1), reduction="none"
    ).mean(1)
    entropy = torch.distributions.Normal(mean, std).entropy().mean()
    expected = each.mean() + 0.3 * (2.0 - entropy)
    assert float(entropy) < 2.0
    assert abs(float(reward.loss(steps, labels, theta) - expected)) < 5 * float(each.std()) / math.sqrt(40_000)
    # An entropy beyond eta costs nothing.
    low = GaussianTransferReward(lam=0.3, eta=float(entropy) - 0.1).loss(steps, labels, theta)
    torch.testing.assert_close(low, GaussianTransferReward(lam=0.0).loss(steps, labels, theta))


def test_imitation_is_in_proportion_to_the_exponential_of_the_return() -> None:
    found = WeightedImitation(temperature=0.5)(torch.tensor([1.0, 0.5, 0.0]))
    assert float(found[0] / found[1]) == pytest.approx(math.e, rel=1e-5)
    problem = preference_transfer(trajectories=6)
    best = (problem.returns == problem.returns.max()).double()
    measures = problem.measure(best)
    assert measures["regret"] == 0.0
    assert problem.measure(torch.full((6,), 1 / 6, dtype=torch.double))["pair accuracy"] == 0.5
    assert problem.pair_accuracy(problem.returns) == 1.0
    assert problem.pair_accuracy(-problem.returns) == 0.0


def test_the_solver_learns_from_sets_of_different_sizes_and_few_labels() -> None:
    whole = find({"name": "preference-transfer", "trajectories": 16, "labelled": 0.5, "noise": 0.05})
    assert isinstance(whole, PreferenceTransfer)
    problem = PreferenceTransfer(whole.source, whole.labels, whole.target[:12], whole.returns[:12])
    solver = po.solver("pearl-ot")
    assert isinstance(solver, PreferenceTransferSolver)
    state = solver.begin(problem)
    for _ in range(80):
        state = solver.iterate(problem, state)
    found = solver.findings(problem, state)
    assert found.labels.shape == (12, 12)
    assert problem.pair_accuracy(found.returns) > 0.8
    record = json.loads(json.dumps(found.record()))
    assert 0 <= record["confidence"] <= 1
    assert record["couplings"] >= record["effective couplings"] - 1e-9
    still = solver.but(coupling=IndependentCoupling())
    state = still.iterate(problem, still.begin(problem))
    assert still.findings(problem, state).confidence < 1e-9


def test_what_cannot_be_is_refused() -> None:
    problem = preference_transfer(trajectories=4)
    x, z, y, r = problem.source, problem.labels, problem.target, problem.returns
    off = z.clone()
    off[0, 1] = 0.7
    for change, message in (
        ((x[:1], z, y, r), "two trajectories or more"),
        ((x, z[:3], y, r), r"need labels \[4, 4\]"),
        ((x, torch.full_like(z, torch.nan), y, r), "no pair of the source's trajectories has a label"),
        ((x, off, y, r), r"labels\[i, k\] \+ labels\[k, i\] must be 1"),
    ):
        with pytest.raises(TransferError, match=message):
            PreferenceTransfer(*change)
    for settings, message in (
        ({"trajectories": 3}, "trajectories >= 4"),
        ({"trajectories": 5, "symmetric": True}, "an even number if symmetric"),
        ({"wrong": 2.0}, r"wrong in \[0, 1\]"),
    ):
        with pytest.raises(TransferError, match=message):
            preference_transfer(**settings)
    for settings, message in (
        ({"eps": 0.0}, "GromovWasserstein: need eps > 0"),
        ({"temperature": 0.0}, "PreferenceTransferSolver: need temperature > 0"),
        ({"lam": -1.0}, "GaussianTransferReward: need lam >= 0"),
    ):
        with pytest.raises(ValueError, match=message):
            po.solver("pearl-ot", **settings)
    with pytest.raises(ValueError, match="WeightedImitation: temperature must be > 0"):
        WeightedImitation(temperature=0.0)
