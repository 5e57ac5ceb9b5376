"""Selections that know the credit, or that draw, against brute force."""

from __future__ import annotations

import collections
import itertools
import math
import statistics

import pytest
import torch
from batches import random_batch

import polopt as po
from polopt.methods.d3s import HighestVariance, TopDecisions, most_varied
from polopt.methods.pf_ppo import RankedRows
from polopt.metrics import most_reliable, r_squared
from polopt.sampling import ResampledRows
from polopt.schedules import Schedule

NAN = float("nan")


@pytest.mark.parametrize("seed", range(20))
def test_most_varied_is_the_best_of_all_subsets(seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(9, generator=g, dtype=torch.double) / (torch.rand(9, generator=g) + 0.01)
    if seed % 2:
        x = x.round()  # ties
    for keep in range(1, 10):
        chosen = most_varied(x, keep)
        assert int(chosen.sum()) == keep
        best = max(statistics.pvariance(c) for c in itertools.combinations(x.tolist(), keep))
        assert statistics.pvariance(x[chosen].tolist()) == pytest.approx(best, rel=1e-12, abs=1e-12)
    assert not most_varied(x, 0).any()


def test_equal_numbers_are_kept_in_the_number_asked_for():
    assert [int(most_varied(torch.full((5,), 0.1), keep).sum()) for keep in range(6)] == [0, 1, 2, 3, 4, 5]


def mean_advantage(e: po.Experience) -> dict[int, float]:
    """Of each row that decided."""
    return {
        i: statistics.fmean(e.advantage[i][t].item() for t in range(e.mask.shape[1]) if e.mask[i, t])
        for i in range(len(e))
        if e.mask[i].any()
    }


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("share", [0.2, 0.5, 1.0])
def test_most_varied_rows(seed, share):
    e = random_batch(seed).experience
    A = mean_advantage(e)

    def best(rows: list[int]) -> set[int]:
        keep = max(1, round(share * len(rows)))
        return set(max(itertools.combinations(rows, keep), key=lambda c: statistics.pvariance([A[i] for i in c])))

    assert set(HighestVariance(share=share)(e).extras["row"].tolist()) == best(list(A))
    groups = collections.defaultdict(list)
    for i in A:
        groups[int(e.group[i])].append(i)
    found = set(HighestVariance(share=share, within="group")(e).extras["row"].tolist())
    for rows in groups.values():
        keep = max(1, round(share * len(rows)))
        if keep > 1:  # the variance of one row is 0, whichever it is
            assert found & set(rows) == best(rows)
        assert len(found & set(rows)) == keep


@pytest.mark.parametrize("seed", range(4))
def test_top_decisions(seed):
    e = random_batch(seed).experience
    score = {
        (i, t): abs(e.advantage[i, t].item()) * e.entropy[i, t].item()
        for i, t in itertools.product(range(len(e)), range(e.mask.shape[1]))
        if e.mask[i, t]
    }

    def top(places, share):
        return set(sorted(places, key=score.__getitem__, reverse=True)[: max(1, round(share * len(places)))])

    for share in (0.01, 0.3, 1.0):
        found = TopDecisions(share=share)(e)
        assert set(map(tuple, found.mask.nonzero().tolist())) == top(list(score), share)
        rows = [[p for p in score if p[0] == i] for i in range(len(e)) if e.mask[i].any()]
        found = TopDecisions(share=share, within="row")(e)
        assert set(map(tuple, found.mask.nonzero().tolist())) == set().union(*(top(places, share) for places in rows))


def test_shares_follow_their_schedule():
    part = HighestVariance(share=Schedule(knots=[(0, 0.25), (2, 1.0)]))
    e = random_batch(0, B=9).experience
    counts = []
    for _ in range(3):
        counts.append(len(part(e)))
        part.step()
    assert counts == [2, 5, 8]  # of the 8 rows that decided


@pytest.mark.parametrize("part", [HighestVariance, TopDecisions])
@pytest.mark.parametrize("share", [0.0, 1.5, Schedule(knots=[(0, 0.5), (3, 2.0)])])
def test_a_share_outside_its_range_is_refused(part, share):
    with pytest.raises(ValueError, match=r"share must be in \(0, 1\]"):
        part(share=share)


def test_rows_of_one_advantage_are_equal_whatever_their_lengths():
    x = torch.full((4, 7), 0.1, dtype=torch.float32)
    mask = torch.arange(7) < torch.tensor([1, 3, 6, 7])[:, None]
    assert po.ops.row_mean(torch.where(mask, x, NAN), mask).unique().tolist() == [x[0, 0].item()]
    y = torch.tensor([[1.0, 2.0, 6.0]])
    assert po.ops.row_mean(y, torch.tensor([[True, False, True]])).item() == 3.5
    assert po.ops.row_mean(y, torch.zeros(1, 3, dtype=torch.bool)).item() == 0


def ranked(e: po.Experience) -> list[list[int]]:
    """The rows of each group, best first, ties in their order."""
    groups = collections.defaultdict(list)
    for i, g in enumerate(e.group.tolist()):
        groups[g].append(i)
    return [sorted(rows, key=lambda i: (-e.outcome[i].item(), i)) for rows in groups.values()]


@pytest.mark.parametrize("seed", range(4))
def test_ranked_against_a_sorted_list(seed):
    e = random_batch(seed, B=27).experience
    for best, worst in ((1, 0), (1, 1), (2, 3), (0, 2), (9, 9)):
        expected = set()
        for rows in ranked(e):
            expected |= set(rows[:best]) | set(rows[len(rows) - min(worst, len(rows)) :])
        assert set(RankedRows(best=best, worst=worst)(e).extras["row"].tolist()) == expected


def one_group(n: int) -> po.Experience:
    return po.Experience(
        mask=torch.ones(n, 1, dtype=torch.bool),
        outcome=torch.arange(n).double(),
        group=torch.zeros(n, dtype=torch.long),
        extras={"row": torch.arange(n)},
    )


def test_chance_is_even_over_the_rest_and_comes_back_by_seed_and_count():
    e, part = one_group(6), RankedRows(best=1, worst=1, others=2)
    drawn = [tuple(part(e).extras["row"].tolist()) for _ in range(1200)]
    assert all({0, 5} <= set(rows) and len(rows) == 4 for rows in drawn)
    pairs = collections.Counter(tuple(r for r in rows if r not in (0, 5)) for rows in drawn)
    assert len(pairs) == 6
    # 200 expected of each, standard deviation 12.9
    assert all(abs(count - 200) < 60 for count in pairs.values())
    again = RankedRows(best=1, worst=1, others=2)
    assert [tuple(again(e).extras["row"].tolist()) for _ in range(20)] == drawn[:20]
    other = RankedRows(best=1, worst=1, others=2, seed=1)
    assert [tuple(other(e).extras["row"].tolist()) for _ in range(20)] != drawn[:20]


def test_chance_stands_still_in_evaluation_mode():
    e, part = one_group(30), RankedRows(best=0, others=3).eval()
    assert len({tuple(part(e).extras["row"].tolist()) for _ in range(5)}) == 1
    part.train()
    assert len({tuple(part(e).extras["row"].tolist()) for _ in range(5)}) > 1


@pytest.mark.parametrize(
    ("part", "weigh"),
    [
        (ResampledRows(), lambda x: x * x),
        (ResampledRows(power=1.0), abs),
        (ResampledRows(weights="extremes"), lambda x: float(x in (0.0, 5.0))),
        (ResampledRows(weights="best"), lambda x: 0.4 if x == 5.0 else 0.1),
    ],
)
def test_resampled_draws_in_proportion(part, weigh):
    e, counts, times = one_group(6), collections.Counter(), 800
    for _ in range(times):
        found = part(e)
        assert len(found) == 6
        counts.update(found.outcome.tolist())
    weights = [weigh(float(i)) for i in range(6)]
    for i, w in enumerate(weights):
        p = w / sum(weights)
        assert abs(counts[float(i)] - 6 * times * p) <= 4 * math.sqrt(6 * times * p * (1 - p))


def test_resampled_draws_evenly_where_all_weights_are_zero():
    e = one_group(6)
    e, part = e.replace(outcome=torch.zeros(6)), ResampledRows()
    seen = collections.Counter(r for _ in range(200) for r in part(e).extras["row"].tolist())
    assert len(seen) == 6


def test_ranked_needs_somebody_to_keep():
    with pytest.raises(ValueError, match="must be >= 0 and not all 0, found 0, 0 and 0"):
        RankedRows(best=0)


def test_a_selection_after_credit_leaves_baselines_and_normalisers_honest():
    """The kept rows are compared with what all were compared with; the mean is over the kept decisions."""
    e = one_group(4).replace(reward=torch.tensor([0.0, 0.0, 0.0, 1.0]), rollout_logp=torch.full((4, 1), -1.0))
    algorithm = po.method("grpo", kl=0.0).but(select=[RankedRows(best=1)])
    kept = algorithm.compute_advantages(e.replace(outcome=e.reward))
    assert kept.advantage.flatten().tolist() == pytest.approx([1.5], abs=1e-5)  # (1 - 1/4) / std 1/2
    logp = torch.full((1, 1), -1.0, requires_grad=True)
    algorithm.objective(kept, po.Evaluation(logp=logp)).loss.backward()
    assert logp.grad.item() == pytest.approx(-1.5, abs=1e-5)


def test_r_squared_by_hand():
    # x - mean: -1, 0, 1; y - mean: -1, 2, -1: no correlation. y = 3 - 2 x: all of it.
    assert r_squared([0, 1, 2], [0, 3, 0]) == pytest.approx(0)
    assert r_squared([0, 1, 2], [3, 1, -1]) == pytest.approx(1)
    # x: -1, 0, 1 against y: -2/3, 1/3, 1/3: (1)^2 / (2 * 2/3)
    assert r_squared([0, 1, 2], [0, 1, 1]) == pytest.approx(0.75)
    assert math.isnan(r_squared([1, 1], [0, 1]))
    assert math.isnan(r_squared([1], [0]))
    with pytest.raises(ValueError, match=r"must both be \[n\], found \[2\] and \[3\]"):
        r_squared([1, 2], [1, 2, 3])


def test_most_reliable():
    reward, truth = [0, 1, 2, 3], [0, 3, 0, 3]
    name, found = most_reliable(reward, truth, {"all": [0, 1, 2, 3], "ends": [0, 3], "one": [2], "mask": [0, 1]})
    assert name == "ends"
    assert found["ends"] == found["mask"] == pytest.approx(1)
    assert math.isnan(found["one"])
    assert most_reliable([1, 1], [0, 1], {"all": [0, 1]})[0] is None
    with pytest.raises(ValueError, match="at least one selection"):
        most_reliable(reward, truth, {})
