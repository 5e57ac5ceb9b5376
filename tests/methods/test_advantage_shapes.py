"""The methods that shape the advantage, against their formulas written out row by row in plain Python."""

from __future__ import annotations

import math
import statistics

import pytest
import torch
from graded_groups import SEEDS, by_group, close, graded
from scipy import stats
from sentences import batch_of, same, slope

import polopt as po
from polopt import ops
from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.features.rows import DecisionCount, MeanEntropy, RowField, SuccessRate
from polopt.fields import ExperienceError
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.lab.problems import digits
from polopt.methods.bnpo import BetaScale
from polopt.methods.canon import HalfGroupAdvantage, upper_share
from polopt.objectives import TokenMean
from polopt.part_diff import diff
from polopt.sampling.parts import RolloutRequest
from polopt.schedules import Schedule

# Lite PPO -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_lite_ppo_divides_by_the_std_of_all_returns(seed: int) -> None:
    batch = graded(seed)
    R = batch.reward.tolist()
    mean = {g: statistics.fmean(R[i] for i in rows) for g, rows in by_group(batch).items()}
    expected = [(r - mean[g]) / (statistics.stdev(R) + 1e-6) for r, g in zip(R, batch.group.tolist(), strict=True)]
    close(po.method("tricks-lite-ppo").credit(batch), expected)


def test_lite_ppo_changes_two_things_in_grpo() -> None:
    changed = {path for path, *_ in diff(po.method("grpo", group=8, kl=0), po.method("tricks-lite-ppo"))}
    assert changed == {"credit.scale.within", "objective.aggregate"}


def test_lite_ppo_is_grpo_over_tokens_on_a_batch_of_one_prompt() -> None:
    tree, policy = digits()
    batch = batch_of(tree, policy, group=12, prompts=1)
    plain = po.method("grpo", kl=0).but(**{"objective.aggregate": TokenMean()})
    same(slope(po.method("tricks-lite-ppo"), batch, policy), slope(plain, batch, policy))


# BNPO ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("levels", [2, 5])
def test_bnpo_is_the_published_advantage(seed: int, levels: int) -> None:
    batch = graded(seed, groups=9, levels=levels)
    R, groups = batch.reward.tolist(), by_group(batch)
    p = {g: statistics.fmean(R[i] for i in rows) for g, rows in groups.items()}
    mean, variance = statistics.fmean(p.values()), statistics.variance(p.values())
    k = mean * (1 - mean) / variance - 1
    f = stats.beta(max(1.0, 1 + k * mean / 3), max(1.0, 1 + k * (1 - mean) / 3))
    expected = [
        (r - p[g]) * (min(1 / f.pdf(p[g]), 1e6) if 0 < p[g] < 1 else 1.0)
        for r, g in zip(R, batch.group.tolist(), strict=True)
    ]
    close(po.method("bnpo").credit(batch), expected)


def test_bnpo_bounds_the_unit() -> None:
    """A rate far out on a narrow density: 1 / f would be astronomical."""
    reward = torch.tensor([0.5, 0.5] * 20 + [0.0, 0.02]).double()
    batch = po.Experience(mask=torch.ones(42, 1).bool(), reward=reward, group=torch.arange(21).repeat_interleave(2))
    scale = BetaScale(shape=(2000.0, 2000.0))
    assert scale(batch, reward)[-1].item() == 1e-6
    assert RelativeAdvantage(scale=scale)(batch)[-1].item() == pytest.approx(0.01 * 1e6)


def test_bnpo_with_the_uniform_density_is_dr_grpo_and_with_three_halves_grpo_times_pi_over_8() -> None:
    batch = graded(0)
    plain = RelativeAdvantage(baseline=GroupMean(), scale=None)(batch)
    same(RelativeAdvantage(scale=BetaScale(shape=(1.0, 1.0)))(batch), plain)
    grpo = RelativeAdvantage(scale=GroupStd(correction=0, eps=0.0))(batch)
    torch.testing.assert_close(RelativeAdvantage(scale=BetaScale(shape=(1.5, 1.5)))(batch), math.pi / 8 * grpo)


@pytest.mark.parametrize("groups", [1, 4])
def test_bnpo_without_anything_to_fit_has_the_uniform_density(groups: int) -> None:
    reward = torch.tensor([0.0, 1.0, 1.0, 0.0] * groups).double()
    batch = po.Experience(
        mask=torch.ones(4 * groups, 1).bool(), reward=reward, group=torch.arange(groups).repeat_interleave(4)
    )
    close(po.method("bnpo").credit(batch), [-0.5, 0.5, 0.5, -0.5] * groups)


def test_bnpo_rescales_rewards_and_refuses_others() -> None:
    batch = graded(3, levels=3)
    moved = batch.replace(reward=batch.reward * 3 - 2)
    same(po.method("bnpo", worst=-2.0, best=1.0).credit(moved), po.method("bnpo").credit(batch))
    with pytest.raises(ExperienceError, match=r"returns in \[0, 1\], found -2 to 1; set low and high"):
        po.method("bnpo").credit(moved)
    with pytest.raises(ValueError, match="low < high"):
        BetaScale(low=1.0, high=1.0)
    with pytest.raises(ValueError, match="alpha, beta >= 1"):
        BetaScale(shape=(0.5, 2.0))


# Stratified GRPO ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_stratified_grpo_is_the_blend_of_two_z_scores(seed: int) -> None:
    stratum = torch.randint(0, 3, (48,), generator=torch.Generator().manual_seed(seed))
    batch = graded(seed, stratum=stratum)
    R = batch.reward.tolist()

    def z(i: int, rows: list[int]) -> float:
        if len(rows) == 1:
            return 0.0
        values = [R[j] for j in rows]
        return (R[i] - statistics.fmean(values)) / (statistics.stdev(values) + 1e-6)

    kind = batch.extras["stratum"].tolist()
    expected = [0.0] * len(R)
    for rows in by_group(batch).values():
        for i in rows:
            expected[i] = 0.7 * z(i, [j for j in rows if kind[j] == kind[i]]) + 0.3 * z(i, rows)
    close(po.method("stratified-grpo", alpha=0.7, by=RowField(name="stratum")).credit(batch), expected)


def test_stratified_grpo_with_one_stratum_or_without_weight_is_grpo() -> None:
    tree, policy = digits()
    batch = batch_of(tree, policy)
    grpo = po.method("grpo", kl=0)
    assert (po.features.TurnCount()(batch) == 1).all()
    same(slope(po.method("stratified-grpo"), batch, policy), slope(grpo, batch, policy))
    same(slope(po.method("stratified-grpo", alpha=0.0, by=DecisionCount()), batch, policy), slope(grpo, batch, policy))
    different = slope(po.method("stratified-grpo", by=DecisionCount()), batch, policy)
    assert (different - slope(grpo, batch, policy)).abs().max() > 1e-3


# CANON --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("by", "alpha", "size"), [("entropy", 0.9, 8), ("length", 1.1, 8), ("entropy", 0.9, 7)])
def test_canon_is_the_published_advantage(seed: int, by: str, alpha: float, size: int) -> None:
    """As in the authors' code: sorted by the measure, cut at n // 2, alpha on one half as own return and as mean."""
    batch, mu = graded(seed, size=size), 0.6
    R, x = batch.reward.tolist(), batch.extras["x"].tolist()
    expected = [0.0] * len(R)
    for rows in by_group(batch).values():
        ordered = sorted(rows, key=lambda i: x[i])
        low, high = ordered[: size // 2], ordered[size // 2 :]
        short, long = (statistics.fmean(R[i] for i in half) for half in (low, high))
        for i in high:
            inter = R[i] - alpha * short if by == "entropy" else alpha * R[i] - short
            expected[i] = mu * inter + (1 - mu) * (R[i] - long)
        for i in low:
            inter = alpha * R[i] - long if by == "entropy" else R[i] - alpha * long
            expected[i] = mu * inter + (1 - mu) * (R[i] - short)
    factor = {"lower": alpha} if by == "entropy" else {"upper": alpha}
    close(HalfGroupAdvantage(by=RowField(name="x"), mu=mu, **factor)(batch), expected)


def test_canon_shares_level_rows_between_the_halves() -> None:
    """Six rows, four of them level: the border leaves two of the four above it."""
    batch = po.Experience(
        mask=torch.ones(6, 1).bool(),
        reward=torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0, 1.0]).double(),
        group=torch.zeros(6).long(),
        extras={"x": torch.tensor([1.0, 2.0, 2.0, 2.0, 2.0, 3.0])},
    )
    # Upper: 1/2 of each of rows 1 to 4, and row 5: mean (0.5 + 1) / 3 = 1/2. Lower: row 0 and the halves: 1/2 too.
    close(HalfGroupAdvantage(by=RowField(name="x"))(batch), [0.5, -0.5, 0.5, -0.5, -0.5, 0.5])
    tilted = batch.replace(reward=torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0, 1.0]).double())
    # Upper (0.5 + 1) / 3 = 1/2, lower 0.5 / 3 = 1/6; a level row is compared with both, half and half: 1/3.
    close(HalfGroupAdvantage(by=RowField(name="x"))(tilted), [-1 / 2, -1 / 3, 2 / 3, -1 / 3, -1 / 3, 5 / 6])
    level = batch.replace(extras={"x": torch.ones(6)})
    same(HalfGroupAdvantage(by=RowField(name="x"))(level), RelativeAdvantage(scale=None)(level))


def test_canon_with_mu_one_half_is_dr_grpo() -> None:
    tree, policy = digits()
    batch = batch_of(tree, policy, group=8)
    canon = po.method("canon", by=DecisionCount(), mu=0.5, high=0.2)
    same(slope(canon, batch, policy), slope(po.method("dr-grpo"), batch, policy))


def test_canon_follows_accuracy_and_schedules() -> None:
    batch = graded(1)
    accuracy = batch.outcome.mean().item()
    fixed = [HalfGroupAdvantage(by=RowField(name="x"), mu=m)(batch) for m in (accuracy, 1 - accuracy)]
    same(HalfGroupAdvantage(by=RowField(name="x"), mu=SuccessRate())(batch), fixed[0])
    same(HalfGroupAdvantage(by=RowField(name="x"), mu=SuccessRate(invert=True))(batch), fixed[1])
    algorithm = po.method("canon", by=RowField(name="x"), mu=Schedule(knots=[(0, 1.0), (2, 0.0)]))
    algorithm.step()
    same(algorithm.credit(batch), HalfGroupAdvantage(by=RowField(name="x"), mu=0.5)(batch))


def test_canon_alone_has_no_credit() -> None:
    batch = graded(0, size=1)
    assert HalfGroupAdvantage(by=RowField(name="x"), upper=2.0)(batch).count_nonzero() == 0
    with pytest.raises(ExperienceError, match=r"needs experience.entropy"):
        po.method("canon").credit(batch)
    assert isinstance(po.method("canon").credit.by, MeanEntropy)


def test_places_and_upper_share() -> None:
    x, group = torch.tensor([3.0, 1, 2, 2, 2, 5, 7]), torch.tensor([4, 9, 4, 9, 4, 4, 4])
    below, level = ops.places(x, group)
    assert below.tolist() == [2, 0, 0, 1, 0, 3, 4]
    assert level.tolist() == [1, 1, 2, 1, 2, 1, 1]
    # Group 4, sorted: 2 2 | 3 5 7. Group 9: 1 | 2.
    assert upper_share(x, group).tolist() == [1, 0, 0, 1, 0, 1, 1]
    assert upper_share(torch.tensor([0.0, 0, 0]), torch.zeros(3).long()).tolist() == pytest.approx([2 / 3] * 3)
    assert ops.numbered(["b", "a", "b", "c"]) == [0, 1, 0, 2]


# What the lab and the language loop provide -------------------------------------------------------------------


def test_trees_have_kinds_and_pay_what_is_drawn() -> None:
    tree = TokenTree.bandit([[0.3, 0.0], [0.9, 1.0]], kinds=["easy", "hard"])
    assert tree.leaves().extras["kind"] == ["easy", "easy", "hard", "hard"]
    with pytest.raises(ValueError, match="2 prompts need as many kinds, found 1"):
        TokenTree.bandit([[0.3, 0.0], [0.9, 1.0]], kinds=["easy"])
    source = TreeSource(
        tree, TabularPolicy(tree), rows=8, draw=lambda batch, g: torch.bernoulli(batch.outcome, generator=g)
    )
    paid = torch.cat([source.rollout(RolloutRequest(source.take(2), 500, po.Support())).outcome for _ in range(4)])
    assert set(paid.tolist()) == {0.0, 1.0}
    assert paid.mean().item() == pytest.approx((0.3 + 0.0 + 0.9 + 1.0) / 4, abs=0.03)
