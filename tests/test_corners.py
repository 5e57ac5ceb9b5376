"""Corners where rounding, precision, empty rows or empty schedules once decided."""

from __future__ import annotations

import itertools

import pytest
import torch

import polopt as po
from polopt.methods.chord import fading
from polopt.methods.rlcm_scaling import LengthEnvelope
from polopt.rewards import KLPenalty, OutcomeReward, OverlongPenalty, SumOfRewards

DOUBLE = torch.float64


def siblings(worth: list[float], orders: list[tuple[int, ...]], dtype: torch.dtype) -> po.Experience:
    """A group for each order: a tree's edges, rows of two tokens, all children of one node."""
    logp = torch.log(torch.linspace(0.1, 0.6, 2 * len(worth), dtype=dtype)).reshape(-1, 2)
    place = torch.tensor(orders).flatten()
    return po.Experience(
        mask=torch.ones(len(place), 2, dtype=torch.bool),
        rollout_logp=logp[place],
        outcome=torch.tensor(worth, dtype=dtype)[place],
        group=torch.arange(len(orders)).repeat_interleave(len(worth)),
        extras={"row": place},
    )


@pytest.mark.parametrize("scale", [None, po.credit.GroupStd(correction=0, eps=1e-8)])
@pytest.mark.parametrize("dtype", [DOUBLE, torch.float32])
@pytest.mark.parametrize("worth", [[5 / 6, 5 / 6, 3 / 6, 1 / 6, 2 / 6, 2 / 6], [0.9, 0.7, 0.5, 0.3, 0.1, 0.5]])
def test_the_order_of_siblings_does_not_matter(worth: list[float], dtype: torch.dtype, scale) -> None:
    """Their mean is 1/2, and the children worth 1/2 teach nothing: in all 720 orders the same rows stay, with the
    gradient that the advantages V - 1/2 give."""
    algorithm = po.method("spo-tree").but(**{"credit.scale": scale})
    orders = list(itertools.permutations(range(6)))
    judged = algorithm.compute_advantages(algorithm.sampling.mark(siblings(worth, orders, dtype)))
    logp = judged.rollout_logp.clone().requires_grad_()
    slope = torch.zeros(len(orders), 6, 2, dtype=dtype)
    at = (judged.group, judged.extras["row"])
    slope[at] = torch.autograd.grad(algorithm.objective(judged, po.Evaluation(logp=logp)).loss, logp)[0]
    kept = torch.zeros(slope.shape[:2], dtype=torch.bool).index_put(at, torch.tensor(True))
    centred = torch.tensor(worth, dtype=DOUBLE) - 0.5
    teaching = centred.abs() > 1e-9
    assert torch.equal(kept, teaching.expand_as(kept))
    unit = 1 if scale is None else centred.square().mean().sqrt()
    expected = -centred / unit * teaching / (2 * teaching.sum() * len(orders))
    tolerance = {"rtol": 1e-5, "atol": 1e-9} if dtype == torch.float32 else {"rtol": 1e-6, "atol": 1e-15}
    torch.testing.assert_close(slope, expected.to(dtype)[:, None].expand_as(slope), **tolerance)
    close = {"rtol": 1e-5 if dtype == torch.float32 else 1e-12, "atol": 0}
    torch.testing.assert_close(slope, slope[:1].expand_as(slope), **close)


def test_a_small_advantage_is_an_advantage() -> None:
    batch = siblings([1.0, 1.0 + 1e-9, 1.0, 1.0, 1.0, 1.0], [tuple(range(6))], DOUBLE)
    algorithm = po.method("spo-tree")
    assert len(algorithm.compute_advantages(algorithm.sampling.mark(batch))) == 6


def with_an_empty_row() -> po.Experience:
    mask = torch.tensor([[1, 1], [1, 0], [1, 1], [0, 0]]).bool()
    logp = torch.where(mask, torch.tensor([[-1.0, -0.5], [-2.0, 0], [-0.3, -0.7], [0, 0]]).double(), torch.nan)
    return po.Experience(
        mask=mask,
        rollout_logp=logp,
        ref_logp=torch.where(mask, logp - 0.25, torch.nan),
        outcome=torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=DOUBLE),
        group=torch.zeros(4, dtype=torch.long),
    )


@pytest.mark.parametrize("kl", [0.0, 1e-9, 0.1])
@pytest.mark.parametrize("slug", ["rloo", "grpo"])
def test_a_row_without_decisions_keeps_its_outcome_in_the_baseline(slug: str, kl: float) -> None:
    """R_i - kl sum_t (logp - ref), logp - ref = 1/4 everywhere: the row of outcome 1 without decisions has 1."""
    R = [1 - kl / 2, -kl / 4, -kl / 2, 1.0]
    algorithm = po.method("rloo", kl=kl)
    if slug == "grpo":
        algorithm = algorithm.but(credit=po.credit.RelativeAdvantage(scale=None))
    judged = algorithm.compute_advantages(with_an_empty_row())
    count = 3 if slug == "rloo" else 4
    others = [sum(R) - r if slug == "rloo" else sum(R) for r in R]
    for row in range(3):
        assert judged.advantage[row, 0].item() == pytest.approx(R[row] - others[row] / count, abs=1e-12)
    assert judged.returns().tolist() == pytest.approx(R, abs=1e-12)
    assert (judged.advantage[3] == 0).all()


def test_an_empty_row_is_paid_as_the_terms_and_weights_say() -> None:
    reward = SumOfRewards(
        terms=[OutcomeReward(scale=2, shift=-1), KLPenalty(coefficient=0.1), OutcomeReward()], weights=[3.0, 1.0, 0.5]
    )
    found = reward.rewarded(with_an_empty_row())
    assert found.returns().tolist() == pytest.approx([3.5 - 0.05, -3 - 0.025, -3 - 0.05, 3.5])
    assert torch.equal(reward(with_an_empty_row()), found.reward)


@pytest.mark.parametrize("dtype", [DOUBLE, torch.float32])
def test_lengths_are_paid_in_the_precision_of_the_batch(dtype: torch.dtype) -> None:
    """(L - c - n) / c = -1/3 at n = 8 of L = 10, c = 3; (9 - 4) / (9 - 2) = 5/7 of the trapezium's far side."""
    mask = torch.ones(1, 8, dtype=torch.bool)
    batch = po.Experience(mask=mask, outcome=torch.ones(1, dtype=dtype), group=torch.zeros(1, dtype=torch.long))
    for part, expected in (
        (OverlongPenalty(limit=10, buffer=3), -1 / 3),
        (LengthEnvelope(least=0, low=1, high=2, most=9), 1 / 7),
    ):
        found = part(batch)
        assert found.dtype == dtype
        assert found.item() == torch.tensor(expected, dtype=dtype).item()
    constant = po.credit.ConstantAdvantage(value=0.1)(batch)
    assert constant[0, 0].item() == torch.tensor(0.1, dtype=dtype).item()


@pytest.mark.parametrize("warmup", [0, 1, 2, 10])
@pytest.mark.parametrize("decay", [0, 1, 4])
def test_a_fading_share_is_peak_times_t_over_warmup_while_it_rises(warmup: int, decay: int) -> None:
    schedule = fading(peak=0.9, valley=0.05, warmup=warmup, decay=decay)
    for t in range(warmup + decay + 3):
        if t < warmup:
            expected = 0.9 * t / warmup
        elif t >= warmup + decay:
            expected = 0.05
        else:
            turned = torch.tensor(torch.pi * (t - warmup) / decay, dtype=DOUBLE)
            expected = 0.05 + 0.85 * (1 + turned.cos().item()) / 2
        assert schedule.at(t) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("rows", [0, 4])
@pytest.mark.parametrize("slug", ["hapo", "spo-tree", "dapo", "dr-grpo", "luspo", "bnpo"])
def test_a_batch_without_columns_has_a_loss_of_0(slug: str, rows: int) -> None:
    none = torch.zeros(rows, 0)
    outcome, group = torch.arange(rows) % 2.0, torch.arange(rows) // 2
    batch = po.Experience(mask=none.bool(), rollout_logp=none, outcome=outcome, group=group, horizon=8)
    algorithm = po.method(slug)
    judged = algorithm.compute_advantages(algorithm.sampling.mark(batch))
    said = po.Evaluation(logp=none[: len(judged)].requires_grad_(), entropy=none[: len(judged)])
    assert algorithm.objective(judged, said).loss.item() == 0
