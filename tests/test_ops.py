"""Masked and grouped maths against brute force; annotated shapes are enforced here as in every test."""

from __future__ import annotations

import math
import statistics

import jaxtyping
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.spatial import distance

from polopt import ops

floats = st.floats(-100, 100, allow_subnormal=False)
rows = st.lists(st.tuples(floats, st.integers(-3, 3)), min_size=1, max_size=12)


@given(st.lists(st.lists(st.tuples(st.booleans(), st.integers(0, 2), floats), max_size=7), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_turns_of_rows(lines):
    """Turn by turn: the first decision's value, the place in the row, and the discounted sum to go."""
    T = max(map(len, lines)) + 1
    mask, turn, x = (
        torch.zeros(len(lines), T, dtype=torch.bool),
        torch.full((len(lines), T), -1),
        torch.zeros(len(lines), T),
    )
    x = x.double()
    expected = []
    for i, line in enumerate(lines):
        number, own = 0, {}
        for t, (decided, step, value) in enumerate(line):
            number += step
            mask[i, t], turn[i, t], x[i, t] = decided, number if decided else -1, value if decided else math.nan
            if decided:
                own.setdefault(number, []).append(value)
        turns = list(own.values())
        for k, values in enumerate(turns):
            to_go = sum(0.5 ** (u - k) * sum(turns[u]) for u in range(k, len(turns)))
            expected.append((values[0], k, to_go))
    _, row, _ = ops.turns(turn, mask)
    found = ops.turn_first(x, turn, mask), ops.turn_place(row), ops.turn_to_go(x, turn, mask, 0.5)
    assert all(len(values) == len(expected) for values in found)
    for k, (first, place, to_go) in enumerate(expected):
        assert found[0][k].item() == first
        assert found[1][k].item() == place
        assert found[2][k].item() == pytest.approx(to_go, abs=1e-9)


@given(rows)
@settings(max_examples=60, deadline=None)
def test_group_statistics(pairs):
    x = torch.tensor([p[0] for p in pairs], dtype=torch.float64)
    group = torch.tensor([p[1] for p in pairs])
    for i, (_, g) in enumerate(pairs):
        own = [v for v, h in pairs if h == g]
        others = [v for j, (v, h) in enumerate(pairs) if h == g and j != i]
        assert ops.group_size(group)[i] == len(own)
        assert ops.group_least(x, group)[i] == min(own)
        assert ops.group_sum(x, group)[i].item() == pytest.approx(math.fsum(own), abs=1e-9)
        assert ops.group_mean(x, group)[i].item() == pytest.approx(statistics.fmean(own), abs=1e-9)
        expected = statistics.fmean(others) if others else 0.0
        assert ops.leave_one_out_mean(x, group)[i].item() == pytest.approx(expected, abs=1e-9)
        for correction, reference in ((0, statistics.pstdev), (1, statistics.stdev)):
            expected = reference(own) if len(own) > correction else 0.0
            assert ops.group_std(x, group, correction)[i].item() == pytest.approx(expected, abs=1e-6)


def test_masked_sum_and_mean():
    x = torch.tensor([[1.0, math.nan], [4.0, math.inf]])
    mask = torch.tensor([[True, False], [True, False]])
    assert ops.masked_sum(x, mask) == 5
    assert ops.masked_mean(x, mask) == 2.5
    assert ops.masked_mean(x, torch.zeros_like(mask)) == 0


def test_last_decision():
    mask = torch.tensor([[True, False, True, False], [False] * 4, [True] * 4])
    assert ops.last_decision(mask).nonzero().tolist() == [[0, 2], [2, 3]]


def test_top_k_keeps_ties_and_top_p_the_smallest_set():
    logits = torch.tensor([3.0, 1.0, 2.0, 2.0, 0.0])
    assert ops.kept_choices(logits, 2, 1.0).tolist() == [True, False, True, True, False]
    assert ops.kept_choices(logits, 0, 1.0).all()
    assert ops.kept_choices(logits, 0, 1e-6).tolist() == [True, False, False, False, False]
    # top_k first, then top_p over what is left: 3 and the two 2s have shares 0.576, 0.212, 0.212.
    assert ops.kept_choices(logits, 2, 0.6).sum() == 2


def test_entropy():
    logp = torch.tensor([[0.5, 0.25, 0.25, 0.0]]).log()
    assert ops.entropy_of(logp).item() == pytest.approx(1.5 * math.log(2))


def test_the_gradient_of_an_entropy_over_some_choices_is_finite() -> None:
    """-p_j (log p_j + H) at the choices, whatever factor it is multiplied with; 0 at the others."""
    logits = torch.tensor([0.3, -torch.inf, -0.4, 1.1], dtype=torch.float64, requires_grad=True)
    (-7.0 * ops.entropy_of(logits.log_softmax(-1))).backward()
    p = [math.exp(x) for x in (0.3, -0.4, 1.1)]
    p = [x / sum(p) for x in p]
    entropy = -sum(x * math.log(x) for x in p)
    by_hand = [7.0 * x * (math.log(x) + entropy) for x in p]
    assert logits.grad.tolist() == pytest.approx([by_hand[0], 0.0, by_hand[1], by_hand[2]])


def test_k3_is_exact_near_the_reference():
    """expm1 keeps what exp - 1 would lose: k3 = d^2 / 2 + d^3 / 6 + ..."""
    d = torch.tensor([[1e-5]], dtype=torch.float64)
    assert ops.kl_estimate("k3", torch.zeros_like(d), d).item() == pytest.approx(5e-11, rel=1e-4)


def test_no_columns_and_no_rows():
    for shape in ((3, 0), (0, 4), (0, 0)):
        x, mask = torch.zeros(shape), torch.zeros(shape, dtype=torch.bool)
        assert ops.discounted_to_go(x, mask, 0.9).shape == shape
        assert ops.gae(x, x, x, mask, mask, mask, 0.9, 0.9).shape == shape
        assert ops.last_decision(mask).shape == shape
        assert ops.masked_mean(x, mask) == 0


def test_shapes_are_checked_in_tests():
    with pytest.raises(jaxtyping.TypeCheckError):
        ops.masked_sum(torch.zeros(2, 3), torch.zeros(2, 4, dtype=torch.bool))
    with pytest.raises(jaxtyping.TypeCheckError):
        ops.group_mean(torch.zeros(2), torch.zeros(3, dtype=torch.long))


def test_the_mean_log_probability_is_over_the_choices_there_are() -> None:
    logp = torch.tensor([[0.5, 0.25, 0.25, 0.0], [1.0, 0.0, 0.0, 0.0]], dtype=torch.float64).log().requires_grad_()
    found = ops.mean_logp(logp)
    assert found.tolist() == pytest.approx([-(math.log(2) + 2 * math.log(4)) / 3, 0.0])
    (slope,) = torch.autograd.grad(found.sum(), logp)
    assert slope[0].tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])
    assert slope[1].tolist() == [1, 0, 0, 0]


def test_what_a_probability_leaves() -> None:
    for dtype, tiny, bound in [(torch.float64, 1e-13, 1e-3), (torch.float32, 1e-6, 0.1)]:
        p = torch.tensor([1e-30, 1e-3, 0.3, 0.5, 0.9, 1 - tiny], dtype=torch.float64)
        x = p.log().to(dtype).requires_grad_()
        found = ops.log1mexp(x)
        torch.testing.assert_close(found.double(), torch.log1p(-p), rtol=bound, atol=1e-30)
        (slope,) = torch.autograd.grad(found.sum(), x)
        torch.testing.assert_close(slope.double(), -p / (1 - p), rtol=bound, atol=0)
    ends = torch.tensor([0.0, -1e4, -torch.inf], requires_grad=True)
    found = ops.log1mexp(ends)
    assert found.isfinite().all()
    (slope,) = torch.autograd.grad(found.sum(), ends)
    assert slope.isfinite().all()


@pytest.mark.parametrize("alpha", [0.0, 0.2, 0.5, 0.9, 1.0])
def test_jensen_shannon_agrees_with_scipy(alpha: float) -> None:
    p, q = (torch.rand(4, 6, generator=torch.Generator().manual_seed(s), dtype=torch.float64) ** 4 for s in (1, 2))
    p, q = p / p.sum(1, keepdim=True), q / q.sum(1, keepdim=True)
    m = (1 - alpha) * p + alpha * q
    kl = lambda a, b: stats.entropy(a.numpy(), b.numpy(), axis=1)  # noqa: E731
    expected = {0.0: kl(q, p), 1.0: kl(p, q)}.get(alpha, alpha * kl(q, m) + (1 - alpha) * kl(p, m))
    assert ops.jensen_shannon(p.log(), q.log(), alpha).tolist() == pytest.approx(expected.tolist(), rel=1e-12)
    if alpha == 0.5:
        halves = distance.jensenshannon(p.numpy(), q.numpy(), axis=1) ** 2
        assert expected.tolist() == pytest.approx(halves.tolist())
    assert ops.jensen_shannon(p.log(), p.log(), alpha).abs().max() < 1e-15
    # A choice that neither law has changes nothing.
    nothing = torch.full((4, 1), ops.NOTHING, dtype=torch.float64)
    longer = ops.jensen_shannon(torch.cat([p.log(), nothing], 1), torch.cat([q.log(), nothing], 1), alpha)
    assert longer.tolist() == pytest.approx(expected.tolist(), rel=1e-12)


def test_the_next_decision() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 2.0, 3.0, float("nan"), 5.0], [1.0, 2.0, 3.0, 4.0, 5.0]])
    mask = torch.tensor([[1, 1, 0, 1, 0], [0, 1, 1, 0, 1], [0, 0, 0, 0, 0]]).bool()
    assert ops.next_decision(x, mask).tolist() == [[2, 4, 0, 0, 0], [0, 3, 5, 0, 0], [0, 0, 0, 0, 0]]
    assert ops.next_decision(x[:, :0], mask[:, :0]).shape == (3, 0)


def test_taken_rows_have_the_gradient_of_one_order_whatever_the_threads_do() -> None:
    torch.manual_seed(0)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        x = torch.randn(3, 4, requires_grad=True)
        index = torch.randint(0, 3, (100, 400))
        taken = ops.take(x, index)
        assert torch.equal(taken, x[index])
        upstream = torch.randn_like(taken)
        (found,) = torch.autograd.grad(taken, x, upstream)
    finally:
        torch.set_num_threads(before)
    rows = upstream.flatten(0, 1).numpy()
    for row in range(3):
        # numpy's running sum adds one row after the other, in single precision.
        one_by_one = rows[(index.flatten() == row).numpy()].cumsum(0)[-1]
        assert (found[row].numpy() == one_by_one).all()


def test_groups_are_numbered_again_once_somebody_wrote_into_them() -> None:
    group, x = torch.tensor([4, 4, 9]), torch.tensor([1.0, 2.0, 4.0])
    assert ops.group_sum(x, group).tolist() == [3, 3, 4]
    assert ops.group_sum(x, group).tolist() == [3, 3, 4]
    group[1] = 9
    assert ops.group_sum(x, group).tolist() == [1, 6, 6]
    ops.group_index(group)[0].add_(1)
    ops.group_index(group)[1].mul_(5)
    assert ops.group_sum(x, group).tolist() == [1, 6, 6]
    assert ops.group_size(group).tolist() == [1, 2, 2]
    with torch.inference_mode():
        mine = torch.tensor([4, 4, 9])
        assert ops.group_size(mine).tolist() == [2, 2, 1]
        mine[1] = 9
        assert ops.group_size(mine).tolist() == [1, 2, 2]
        ops.group_size(other := group.clone())
    y = x.clone().requires_grad_()  # what inference mode made could not be saved for this gradient
    (ops.group_sum(y, group) ** 2).sum().backward()
    assert y.grad is not None
    assert len(other) == 3
