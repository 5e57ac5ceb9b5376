"""SCoRe: credit and rewards by turn against plain loops, its reductions, and what is measured of corrections."""

from __future__ import annotations

import copy

import pytest
import torch
from sentences import batch_of, same, slope

import polopt as po
from polopt.claims.problems.turns import TwoTurns, copier
from polopt.credit import GroupMean, GroupStd, LeaveOneOut, RelativeAdvantage, RewardToGo
from polopt.experience import Experience
from polopt.lab import TabularPolicy, expectation, flat_gradient
from polopt.lab.problems import digits
from polopt.methods.score import TurnAdvantage, TurnRewards
from polopt.metrics import attempts, correction
from polopt.rewards import KLPenalty


def batch(seed: int = 0, B: int = 8, T: int = 9) -> Experience:
    """Turns 0, 1 and 2 of up to three decisions; the last two rows stop after the first turn."""
    g = torch.Generator().manual_seed(seed)
    mask = torch.rand(B, T, generator=g) < 0.8
    mask[:, ::3] = True
    mask[-2:, 3:] = False
    normal = lambda: torch.randn(B, T, generator=g, dtype=torch.double)  # noqa: E731
    nan = torch.full((B, T), torch.nan, dtype=torch.double)
    last = torch.zeros(B, T, dtype=torch.bool)
    turn = torch.where(mask, (torch.arange(T) // 3).expand(B, T), -1)
    for k in range(3):
        now = mask & (turn == k)
        last |= now & (now.flip(1).cumsum(1).flip(1) == 1)
    return Experience(
        mask=mask,
        turn=turn,
        group=torch.tensor([4, 4, 4, 1, 1, 1, 1, 4]),
        reward=torch.where(mask, normal(), nan),
        rollout_logp=torch.where(mask, -normal().abs(), nan),
        ref_logp=torch.where(mask, -normal().abs(), nan),
        extras={"answer_reward": torch.where(mask, torch.where(last, normal(), 0), nan)},
    )


@pytest.mark.parametrize("bonus", [0.0, 3.0])
def test_credit_by_turn_against_a_plain_loop(bonus: float) -> None:
    b = batch()
    found = TurnAdvantage(bonus=bonus)(b)
    paid = b.extras["answer_reward"]
    worth: dict[tuple[int, int], float] = {}
    for row in range(len(b)):
        for k in set(b.turn[row][b.mask[row]].tolist()):
            later = [t for t in range(9) if b.mask[row, t] and b.turn[row, t] >= k]
            worth[row, k] = sum(b.reward[row, t].item() for t in later)
            if k:
                pay = [sum(paid[row, t].item() for t in range(9) if b.turn[row, t] == j) for j in (k - 1, k)]
                worth[row, k] += bonus * (pay[1] - pay[0])
    for row in range(len(b)):
        for t in range(9):
            if not b.mask[row, t]:
                assert found[row, t] == 0
                continue
            k = int(b.turn[row, t])
            others = [w for (r, j), w in worth.items() if j == k and b.group[r] == b.group[row] and r != row]
            mean = sum(others) / len(others) if others else 0.0
            assert found[row, t].item() == pytest.approx(worth[row, k] - mean, rel=1e-10, abs=1e-12)


def test_one_turn_is_relative_credit() -> None:
    tree, policy = digits()
    b = batch_of(tree, policy)
    for baseline, scale in ((LeaveOneOut(), None), (GroupMean(), GroupStd()), (None, None)):
        torch.testing.assert_close(
            TurnAdvantage(baseline=baseline, scale=scale)(b),
            RelativeAdvantage(baseline=baseline, scale=scale)(b),
            rtol=1e-12,
            atol=0,
        )


def test_paid_and_kl_by_turn() -> None:
    b = batch()
    paid = torch.where(b.mask, b.extras["answer_reward"], 0)
    weights = torch.tensor([0.5, 2.0, 2.0], dtype=torch.double)[b.turn.clamp(min=0)]
    torch.testing.assert_close(TurnRewards(weights=(0.5, 2.0))(b), paid * weights, rtol=1e-12, atol=0)
    torch.testing.assert_close(TurnRewards()(b), paid, rtol=0, atol=0)
    whole = KLPenalty(coefficient=0.3)(b)
    parts = [KLPenalty(coefficient=0.3, turn=k)(b) for k in range(3)]
    torch.testing.assert_close(torch.where(b.mask, sum(parts), 0), torch.where(b.mask, whole, 0), rtol=1e-12, atol=0)
    assert all((part[b.mask & (b.turn != k)] == 0).all() for k, part in enumerate(parts))


def test_without_bonus_it_is_naive_two_turn_rl() -> None:
    """Each decision with its reward to go, less a baseline that changes nothing in expectation."""
    tree, policy, reference = copier(questions=2, choices=2)
    ours = po.method("score", alpha=0.0)
    naive = ours.but(credit=RewardToGo())
    found, plain = (expectation(a, tree, policy, group=1, reference=reference).mean for a in (ours, naive))
    torch.testing.assert_close(found, plain, rtol=1e-10, atol=1e-14)
    compared = expectation(ours, tree, policy, group=2, reference=reference).mean
    torch.testing.assert_close(compared, plain, rtol=1e-10, atol=1e-14)


def test_stage_1_is_the_gradient_of_its_objective() -> None:
    tree, policy, reference = copier(questions=2, choices=2)
    with torch.no_grad():
        policy.logits.add_(0.3 * torch.randn(policy.logits.shape, generator=torch.Generator().manual_seed(1)).double())
    kl, first_kl = 0.3, 0.7
    found = expectation(
        po.method("score", stage=1, kl=kl, first_kl=first_kl), tree, policy, group=1, reference=reference
    ).mean
    p, q = tree.log_probabilities(policy), tree.log_probabilities(reference).detach()
    paid = tree.rewards[tree.leaves().mask].view(2, 4, 2)  # type: ignore[index]
    both = (p.exp() * (p - q)).sum(1)
    first, base = (x.exp().view(2, 2, 2).sum(2) for x in (p, q))
    objective = (p.exp() * paid[..., 1]).sum(1) - kl * both - first_kl * (first * (first / base).log()).sum(1)
    torch.testing.assert_close(found, flat_gradient(objective.mean(), policy), rtol=1e-10, atol=1e-14)


def test_stages_differ_in_what_the_paper_changes() -> None:
    two, plain = po.method("score"), po.method("rloo")
    assert {path.split(".")[0] for path, *_ in po.diff(plain, two)} == {"reward", "credit"}
    assert {path.split(".")[0] for path, *_ in po.diff(po.method("score", stage=1), two)} == {"reward", "credit"}
    with pytest.raises(ValueError, match="stage must be 1 or 2"):
        po.method("score", stage=3)


def test_on_one_turn_it_is_rloo() -> None:
    tree, policy = digits()
    b = batch_of(tree, policy)
    b = b.replace(extras={"answer_reward": po.ops.per_decision_reward(b.outcome, b.mask)})
    same(slope(po.method("score", kl=0.05), b, policy), slope(po.method("rloo"), b, policy))


def test_corrections_are_counted() -> None:
    first, second = torch.tensor([1, 1, 0, 0, 0]), torch.tensor([1, 0, 1, 1, 0])
    found = correction(first, second)
    assert found == pytest.approx((0.4, 0.6, 0.2, 0.4, 0.2))
    weighed = correction(first, second, torch.tensor([4.0, 1.0, 1.0, 0.0, 2.0]))
    assert weighed == pytest.approx((5 / 8, 5 / 8, 0.0, 1 / 8, 1 / 8))
    with pytest.raises(ValueError, match="two attempts"):
        correction(first, second[:2])
    paid, turn = torch.tensor([[0.0, 1.0, 0.5], [0.3, torch.nan, torch.nan]]), torch.tensor([[0, 0, 1], [0, -1, -1]])
    one, two, again = attempts(paid, turn, turn >= 0)
    assert one.tolist() == pytest.approx([1.0, 0.3])
    assert two.tolist() == pytest.approx([0.5, 0.3])
    assert again.tolist() == [True, False]


def test_the_lab_s_two_turns_are_exact() -> None:
    tree, policy, before = copier(questions=3, choices=4, known=0.4, copies=0.7)
    found = tree.correction(policy)
    # Right at first with 0.4; a copy stays with 0.7, and another choice is each of three with 0.1.
    assert found == pytest.approx((0.4, 0.4 * 0.7 + 0.6 * 0.1, -0.06, 0.06, 0.12))
    assert tree.delta(policy).item() == pytest.approx(found.delta, rel=1e-12)
    assert tree.first_kl(policy, before) == 0
    moved = copy.deepcopy(policy)
    with torch.no_grad():
        moved.logits[tree.nodes[:, tree.start + 1]] += torch.arange(4.0).double()
    assert tree.first_kl(moved, before) == pytest.approx(0, abs=1e-15)
    assert tree.kl(moved, before) > 0.01
    assert isinstance(tree, TwoTurns)
    assert isinstance(policy, TabularPolicy)
