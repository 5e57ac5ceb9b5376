"""How many rollouts a task gets, and how different answers are, against brute force and loops."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from polopt.sampling.allocation import (
    allocate,
    allocate_exactly,
    apportioned,
    evenly,
    knapsack,
    knapsack_value,
    neyman,
    rollouts_needed,
)
from polopt.sampling.diversity import distinct, edit_distance, mean_edit_distance, self_bleu


def rates(count: int, seed: int) -> torch.Tensor:
    return torch.rand(count, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def worth(counts: torch.Tensor, p: torch.Tensor) -> float:
    return knapsack_value(counts.double(), p).sum().item()


def test_knapsack_value_is_the_chance_of_a_mixed_group_times_the_first_order_gain() -> None:
    for n, p in itertools.product((1, 2, 5), (0.1, 1 / 3, 0.8)):
        mixed = sum(
            math.prod(p if right else 1 - p for right in group)
            for group in itertools.product((True, False), repeat=n)
            if 0 < sum(group) < n
        )
        value = knapsack_value(torch.tensor(float(n), dtype=torch.double), torch.tensor(p, dtype=torch.double))
        assert value.item() == pytest.approx(mixed * p * (1 - p) ** 2, abs=1e-15)
    grid = torch.linspace(0, 1, 3001, dtype=torch.double)
    assert grid[knapsack_value(torch.tensor(1e4), grid).argmax()].item() == pytest.approx(1 / 3, abs=1e-3)


@pytest.mark.parametrize("seed", range(6))
def test_greedy_dynamic_programming_and_brute_force_agree(seed: int) -> None:
    p, low, up, total = rates(4, seed), 1 + seed % 2, 7, 16
    counts = torch.tensor([c for c in itertools.product(range(low, up + 1), repeat=4) if sum(c) == total])
    best = knapsack_value(counts.double(), p).sum(1).max().item()
    for found in (allocate(p, total, low, up), allocate_exactly(p, total, low, up)):
        assert found.sum() == total
        assert low <= found.min() <= found.max() <= up
        assert worth(found, p) == pytest.approx(best, abs=1e-15)


@pytest.mark.parametrize("seed", range(10))
def test_greedy_is_the_optimum_of_large_instances(seed: int) -> None:
    p = torch.cat([rates(30, seed) ** 3, torch.tensor([0.0, 1.0, 1e-9], dtype=torch.double)])
    greedy, exact = allocate(p, 8 * 33, 2, 40), allocate_exactly(p, 8 * 33, 2, 40)
    assert worth(greedy, p) == pytest.approx(worth(exact, p), abs=1e-12)


def test_allocation_without_room_is_uniform_and_level_tasks_share() -> None:
    assert allocate(rates(5, 0), 40, 8, 8).tolist() == [8] * 5
    assert sorted(allocate(torch.full((4,), 0.3), 18, 2, 9).tolist()) == [4, 4, 5, 5]
    assert allocate(torch.zeros(3), 15, 2, 9).tolist() == [5, 5, 5]
    assert allocate(torch.zeros(0), 0).tolist() == []


@pytest.mark.parametrize(("total", "low", "up"), [(5, 2, 9), (40, 2, 9), (12, 0, 9), (12, 9, 2)])
def test_budgets_out_of_reach_are_refused(total: int, low: int, up: int) -> None:
    with pytest.raises(ValueError, match="budget"):
        allocate(torch.full((4,), 0.5), total, low, up)


def test_rollouts_needed_is_when_the_likelier_answer_has_hardly_come_alone() -> None:
    p = torch.tensor([0.1, 0.5, 0.9], dtype=torch.double)
    n = rollouts_needed(p, 0.9)
    torch.testing.assert_close(torch.maximum(p, 1 - p) ** n, torch.full_like(p, 0.1))


def test_knapsack_gives_untried_tasks_their_share_and_hopeless_ones_what_is_left() -> None:
    nan = math.nan
    # Two tries suffice at p = 1/2: 4 and floor(3.32) = 3 on top of the 2 that all have; the rest is for p = 0.
    found = knapsack(torch.tensor([nan, 0.5, 0.0, 1.0, 0.0], dtype=torch.double), 8)
    assert found.tolist() == [8, 5, 13, 2, 12]
    assert knapsack(torch.tensor([0.5, 1.0], dtype=torch.double), 8).tolist() == [5, 11]
    assert knapsack(torch.tensor([0.5, 0.0], dtype=torch.double), 8, confidence=None).tolist() == [14, 2]
    assert knapsack(torch.tensor([0.0, 0.0, 1.0], dtype=torch.double), 4).tolist() == [5, 5, 2]
    assert knapsack(torch.tensor([1.0, 1.0], dtype=torch.double), 4).tolist() == [4, 4]
    assert knapsack(torch.tensor([nan, nan]), 4).tolist() == [4, 4]
    assert knapsack(torch.tensor([0.5, 0.0], dtype=torch.double), 8, up=10, confidence=None).tolist() == [10, 6]


@pytest.mark.parametrize("seed", range(5))
def test_knapsack_spends_its_budget_and_is_the_optimum_where_all_is_open(seed: int) -> None:
    p = rates(20, seed) * 0.98 + 0.01
    assert torch.equal(knapsack(p, 8), allocate(p, 160))
    mixed = torch.where(rates(20, seed + 9) < 0.5, p, (p * 2).floor())
    assert knapsack(mixed, 8).sum() == 160
    assert knapsack(mixed, 8).min() >= 2
    with pytest.raises(ValueError, match="set group"):
        knapsack(p, 1)


def test_neyman_without_alpha_is_the_optimum() -> None:
    norm, p = 0.5 + 1.5 * rates(20, 1), 0.05 + 0.95 * rates(20, 2)
    share = neyman(norm, p)
    variance = lambda s: (norm**2 / (p * s * 400)).sum().item()  # noqa: E731
    assert variance(share) == pytest.approx((norm / p.sqrt()).sum().item() ** 2 / 400, rel=1e-12)
    others = torch.distributions.Dirichlet(torch.ones(20).double())
    torch.manual_seed(0)
    assert all(variance(other) >= variance(share) for other in others.sample((2000,)))


def test_neyman_is_even_for_equals_and_spares_the_hopeless() -> None:
    torch.testing.assert_close(
        neyman(torch.full((4,), 2.0), torch.full((4,), 0.3), 1e-3), torch.full((4,), 0.25).double()
    )
    assert neyman(torch.tensor([1.0, 0.0, 1.0]), torch.tensor([0.5, 0.5, 0.0])).tolist() == [1.0, 0.0, 0.0]
    assert neyman(torch.zeros(2), torch.zeros(2)).tolist() == [0.0, 0.0]
    # Far below alpha a weight tends to G p^((beta - 1) / 2) / sqrt(alpha).
    two = neyman(torch.ones(2), torch.tensor([1e-6, 4e-6], dtype=torch.double), alpha=1e-3)
    assert (two[1] / two[0]).item() == pytest.approx(2.0, rel=1e-3)


@pytest.mark.parametrize("seed", range(8))
def test_apportioned_counts_are_near_their_shares_and_add_up(seed: int) -> None:
    share = rates(13, seed) * (rates(13, seed + 50) < 0.8)
    share = share / share.sum()
    counts = apportioned(share, 57)
    assert counts.sum() == 57
    assert (counts - 57 * share).abs().max() < 1
    assert not counts[share == 0].any()


def test_evenly_leaves_the_others_out() -> None:
    assert evenly(7, torch.tensor([True, False, True])).tolist() == [4, 0, 3]


def test_distinct_counts_different_grams_over_all_answers() -> None:
    assert distinct([[1, 2, 3, 4]], 3) == 1.0
    assert distinct([[1, 2, 3, 4], [1, 2, 3, 4]], 3) == 0.5
    assert distinct([[1, 1, 1, 1], [2]], 2) == 1 / 3
    assert distinct([[1], []], 3) == 0.0


def test_self_bleu_of_copies_is_one_and_of_strangers_zero() -> None:
    assert self_bleu([[1, 2, 3, 4]] * 3) == pytest.approx(1.0)
    assert self_bleu([[1, 2, 3], [4, 5, 6]]) == 0.0
    assert self_bleu([[1, 2, 3]]) == 0.0
    # Two of three tokens, one of two pairs and no triple in common; the same length, so no brevity penalty.
    assert self_bleu([[1, 2, 3], [1, 2, 4]]) == pytest.approx((2 / 3 * 1 / 2 * 0.1) ** (1 / 3))
    # [1, 2] is shorter than [1, 2, 3]: exp(1 - 3/2) for it alone; order 2 is the last that counts.
    first, second = math.exp(-0.5) * 1.0, math.sqrt(2 / 3 * 1 / 2)
    assert self_bleu([[1, 2], [1, 2, 3]], orders=2) == pytest.approx((first + second) / 2)
    # A token counts as often as one reference has it, not as often as all have.
    assert self_bleu([[1, 1, 1], [1, 2, 3], [1, 2, 3]], orders=1) == pytest.approx((1 / 3 + 1 + 1) / 3)


def test_edit_distance_against_recursion() -> None:
    def slow(a: tuple[int, ...], b: tuple[int, ...]) -> int:
        if not a or not b:
            return len(a) + len(b)
        return min(slow(a[1:], b) + 1, slow(a, b[1:]) + 1, slow(a[1:], b[1:]) + (a[0] != b[0]))

    words = [tuple(w) for n in range(4) for w in itertools.product((0, 1), repeat=n)]
    assert all(edit_distance(a, b) == slow(a, b) for a, b in itertools.product(words, words))
    assert mean_edit_distance([[1, 2], [1], [3]]) == pytest.approx((1 + 2 + 1) / 3)
    assert mean_edit_distance([[1, 2]]) == 0
