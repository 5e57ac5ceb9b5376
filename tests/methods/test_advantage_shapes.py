"""The methods that shape the advantage, against their formulas written out row by row in plain Python."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from batches import random_batch
from loops import clipped, decisions
from scipy import stats
from sentences import batch_of, same, slope

import polopt as po
from polopt import ops
from polopt.credit import (
    AcrossGroups,
    AnswerEntropy,
    BetaScale,
    DecisionCount,
    FieldMeasure,
    GroupMean,
    GroupStd,
    HalfGroupAdvantage,
    LogisticMeasure,
    MeanEntropy,
    MultiAdvantage,
    NormalScores,
    RelativeAdvantage,
    SameKind,
    SamePrompt,
    SuccessRate,
    WeightedAdvantage,
)
from polopt.fields import ExperienceError
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.lab.problems import digits
from polopt.objectives import Clip, EntropyBand, PerAdvantageSurrogate, Surrogate, TokenMean
from polopt.part import diff
from polopt.rewards import ConditionalReward, LengthEnvelope, TaskKindIs
from polopt.schedules import Schedule

SEEDS = range(5)


def graded(
    seed: int, groups: int = 6, size: int = 8, levels: int = 2, shuffled: bool = True, **extras: Any
) -> po.Experience:
    """Rows of one decision; returns on so many levels in [0, 1], groups of success rates of their own."""
    g = torch.Generator().manual_seed(seed)
    rate = torch.rand(groups, 1, generator=g).expand(groups, size).double()
    returns = (torch.bernoulli(rate.expand(levels - 1, groups, size), generator=g).sum(0) / (levels - 1)).flatten()
    group = torch.arange(groups).repeat_interleave(size)
    order = torch.randperm(len(group), generator=g) if shuffled else torch.arange(len(group))
    extras = {"x": torch.randn(len(group), generator=g, dtype=torch.double), **extras}
    batch = po.Experience(
        mask=torch.ones(len(group), 1).bool(), reward=returns, outcome=returns, group=group, extras=extras
    )
    return batch[order]


def by_group(batch: po.Experience) -> dict[int, list[int]]:
    rows: dict[int, list[int]] = {}
    for i, group in enumerate(batch.group.tolist()):
        rows.setdefault(group, []).append(i)
    return rows


def close(found: torch.Tensor, expected: list[float]) -> None:
    np.testing.assert_allclose(found[:, 0].numpy(), expected, rtol=1e-11, atol=1e-12)


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
    close(po.method("stratified-grpo", alpha=0.7, by=FieldMeasure(name="stratum")).credit(batch), expected)


def test_stratified_grpo_with_one_stratum_or_without_weight_is_grpo() -> None:
    tree, policy = digits()
    batch = batch_of(tree, policy)
    grpo = po.method("grpo", kl=0)
    assert (po.credit.TurnCount()(batch) == 1).all()
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
    close(HalfGroupAdvantage(by=FieldMeasure(name="x"), mu=mu, **factor)(batch), expected)


def test_canon_shares_level_rows_between_the_halves() -> None:
    """Six rows, four of them level: the border leaves two of the four above it."""
    batch = po.Experience(
        mask=torch.ones(6, 1).bool(),
        reward=torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0, 1.0]).double(),
        group=torch.zeros(6).long(),
        extras={"x": torch.tensor([1.0, 2.0, 2.0, 2.0, 2.0, 3.0])},
    )
    # Upper: 1/2 of each of rows 1 to 4, and row 5: mean (0.5 + 1) / 3 = 1/2. Lower: row 0 and the halves: 1/2 too.
    close(HalfGroupAdvantage(by=FieldMeasure(name="x"))(batch), [0.5, -0.5, 0.5, -0.5, -0.5, 0.5])
    tilted = batch.replace(reward=torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0, 1.0]).double())
    # Upper (0.5 + 1) / 3 = 1/2, lower 0.5 / 3 = 1/6; a level row is compared with both, half and half: 1/3.
    close(HalfGroupAdvantage(by=FieldMeasure(name="x"))(tilted), [-1 / 2, -1 / 3, 2 / 3, -1 / 3, -1 / 3, 5 / 6])
    level = batch.replace(extras={"x": torch.ones(6)})
    same(HalfGroupAdvantage(by=FieldMeasure(name="x"))(level), RelativeAdvantage(scale=None)(level))


def test_canon_with_mu_one_half_is_dr_grpo() -> None:
    tree, policy = digits()
    batch = batch_of(tree, policy, group=8)
    canon = po.method("canon", by=DecisionCount(), mu=0.5, high=0.2)
    same(slope(canon, batch, policy), slope(po.method("dr-grpo"), batch, policy))


def test_canon_follows_accuracy_and_schedules() -> None:
    batch = graded(1)
    accuracy = batch.outcome.mean().item()
    fixed = [HalfGroupAdvantage(by=FieldMeasure(name="x"), mu=m)(batch) for m in (accuracy, 1 - accuracy)]
    same(HalfGroupAdvantage(by=FieldMeasure(name="x"), mu=SuccessRate())(batch), fixed[0])
    same(HalfGroupAdvantage(by=FieldMeasure(name="x"), mu=SuccessRate(invert=True))(batch), fixed[1])
    algorithm = po.method("canon", by=FieldMeasure(name="x"), mu=Schedule(knots=[(0, 1.0), (2, 0.0)]))
    algorithm.advance()
    same(algorithm.credit(batch), HalfGroupAdvantage(by=FieldMeasure(name="x"), mu=0.5)(batch))


def test_canon_alone_has_no_credit() -> None:
    batch = graded(0, size=1)
    assert HalfGroupAdvantage(by=FieldMeasure(name="x"), upper=2.0)(batch).count_nonzero() == 0
    with pytest.raises(ExperienceError, match=r"needs experience.entropy"):
        po.method("canon").credit(batch)
    assert isinstance(po.method("canon").credit.by, MeanEntropy)


# G2RPO --------------------------------------------------------------------------------------------------------


def normal_scores(values: list[float]) -> list[float]:
    """Quantiles by rank, ties their mean: sorted, counted, averaged."""
    ordered, n = sorted(values), len(values)
    quantile = [stats.norm.ppf((k + 0.5) / n) for k in range(n)]
    return [statistics.fmean(q for q, v in zip(quantile, ordered, strict=True) if v == value) for value in values]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("levels", [2, 4])
def test_g2rpo_ranks_within_groups_and_then_within_kinds(seed: int, levels: int) -> None:
    batch = graded(seed, levels=levels, kind=[k for k in "aabbbb" for _ in range(8)])
    R, kinds = batch.reward.tolist(), batch.extras["kind"]
    first = [0.0] * len(R)
    for rows in by_group(batch).values():
        for i, score in zip(rows, normal_scores([R[i] for i in rows]), strict=True):
            first[i] = round(score, 9)  # the same score in two groups, whatever the rounding of its sum
    expected = [0.0] * len(R)
    for kind in "ab":
        rows = [i for i, k in enumerate(kinds) if k == kind]
        for i, score in zip(rows, normal_scores([first[i] for i in rows]), strict=True):
            expected[i] = score
    close(po.method("g2rpo").credit(batch), expected)
    close(NormalScores(within=[SameKind()])(batch), _within(R, kinds))


def _within(R: list[float], kinds: list[str]) -> list[float]:
    scores = {k: iter(normal_scores([r for r, other in zip(R, kinds, strict=True) if other == k])) for k in set(kinds)}
    return [next(scores[k]) for k in kinds]


def test_normal_scores_see_the_order_alone() -> None:
    x = torch.randn(40, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    group = torch.arange(40) % 3
    scores = ops.normal_scores(x, group)
    same(ops.normal_scores(torch.exp(3 * x), group), scores)
    assert torch.equal(ops.normal_scores(-x, group), -scores)  # to the last bit
    pair = ops.normal_scores(torch.tensor([5.0, -100.0]).double(), torch.zeros(2).long())
    assert pair.tolist() == pytest.approx([0.6744897501960817, -0.6744897501960817])
    for n in range(1, 30):
        assert ops.normal_scores(torch.ones(n), torch.zeros(n).long()).count_nonzero() == 0
    # 0 < 1 = 1 < 2 and 0 < 1 = 1 = 1 = 1 < 2: the middle of either scores exactly 0, and so ties again.
    middle = ops.normal_scores(torch.tensor([0.0, 1, 1, 2, 0, 1, 1, 1, 1, 2]), torch.tensor([0] * 4 + [1] * 6))
    assert middle[[1, 2, 5, 6, 7, 8]].count_nonzero() == 0


def test_places_and_upper_share() -> None:
    x, group = torch.tensor([3.0, 1, 2, 2, 2, 5, 7]), torch.tensor([4, 9, 4, 9, 4, 4, 4])
    below, level = ops.places(x, group)
    assert below.tolist() == [2, 0, 0, 1, 0, 3, 4]
    assert level.tolist() == [1, 1, 2, 1, 2, 1, 1]
    # Group 4, sorted: 2 2 | 3 5 7. Group 9: 1 | 2.
    assert ops.upper_share(x, group).tolist() == [1, 0, 0, 1, 0, 1, 1]
    assert ops.upper_share(torch.tensor([0.0, 0, 0]), torch.zeros(3).long()).tolist() == pytest.approx([2 / 3] * 3)
    assert ops.numbered(["b", "a", "b", "c"]) == [0, 1, 0, 2]


def test_a_unanimous_group_may_gain_from_the_second_ranking() -> None:
    """Why the method leaves such groups out: three wrong and a right one beside four alike."""
    batch = po.Experience(
        mask=torch.ones(8, 1).bool(),
        reward=torch.tensor([0.0, 0, 0, 1, 0, 0, 0, 0]).double(),
        group=torch.tensor([0] * 4 + [1] * 4),
        extras={"kind": ["a"] * 8},
    )
    assert NormalScores()(batch)[4:].count_nonzero() == 0
    assert (NormalScores(within=[SamePrompt(), SameKind()])(batch)[4:] > 0.3).all()


def test_envelope_is_a_trapezium() -> None:
    lengths = torch.tensor([0, 9, 10, 15, 20, 30, 45, 60, 61])
    batch = po.Experience(mask=torch.arange(61) < lengths[:, None], extras={"kind": list("aaaaabbbb")})
    envelope = LengthEnvelope(least=10, low=20, high=30, most=60)
    assert envelope(batch).tolist() == pytest.approx([0, 0, 0, 0.5, 1, 1, 0.5, 0, 0])
    assert ConditionalReward(reward=envelope, when=TaskKindIs(kinds=("b",)))(batch).tolist() == pytest.approx(
        [0, 0, 0, 0, 0, 1, 0.5, 0, 0]
    )
    assert LengthEnvelope(least=0, low=1, high=1, most=2).needs == frozenset()
    with pytest.raises(ValueError, match="least < low <= high < most"):
        LengthEnvelope(least=10, low=10, high=20, most=30)


def test_g2rpo_adds_lengths_to_the_reward() -> None:
    terms = [
        ConditionalReward(reward=LengthEnvelope(least=0, low=1, high=1, most=3), when=TaskKindIs(kinds=(k,)))
        for k in "ab"
    ]
    batch = random_batch(1).experience
    found = po.method("g2rpo", lengths=terms, share=0.25).reward(batch)
    length = [min(n, (3 - n) / 2) if n <= 3 else 0 for n in map(len, decisions(batch))]
    assert found.tolist() == pytest.approx(
        [0.75 * o + 0.25 * n for o, n in zip(batch.outcome.tolist(), length, strict=True)]
    )


@pytest.mark.parametrize("of", ["exact", "sampled"])
@pytest.mark.parametrize("kinds", [None, ("a",)])
def test_entropy_band_is_a_hinge_on_the_mean_entropy_of_each_kind(of: str, kinds: tuple[str, ...] | None) -> None:
    outside = 0
    for seed in SEEDS:
        batch = random_batch(seed, clean=True)
        low, high = (0.7, 0.75) if of == "exact" else (1.6, 1.7)
        band = EntropyBand(of=of, low=low, high=high, coefficient=1.0, kinds=kinds)
        entropy = batch.leaves["entropy"] if of == "exact" else -batch.leaves["logp"]
        expected = 0.0
        for kind in kinds or ("a", "b"):
            rows = torch.tensor([k == kind for k in batch.experience.extras["kind"]])
            H = entropy[batch.mask & rows[:, None]].mean().item()
            expected += max(0.0, H - high) + max(0.0, low - H)
            outside += not low <= H <= high
        objective = Surrogate(trust=Clip(), regularise=[band])
        found = objective(batch.experience.replace(advantage=torch.zeros_like(entropy)), batch.evaluation())
        assert found.loss.item() == pytest.approx(expected, abs=1e-12)
        assert found.metrics["EntropyBand"].item() == pytest.approx(expected, abs=1e-12)
    assert outside >= 4


# COPO ---------------------------------------------------------------------------------------------------------


def answer_entropy(answers: list[str], base: float) -> float:
    return -sum(n / len(answers) * math.log(n / len(answers), base) for n in Counter(answers).values())


@pytest.mark.parametrize("seed", SEEDS)
def test_copo_is_two_clipped_losses_blended_by_the_entropy_of_the_answers(seed: int) -> None:
    """Loss and gradient by every logp, from loops over rows and tokens; off policy, in groups of three sizes."""
    batch = random_batch(seed, B=18, clean=True)
    algorithm = po.method("copo", slope=3.0, centre=0.5)
    e = algorithm.judge(batch.experience.replace(reward=None))
    rows, R = decisions(e), e.outcome.tolist()
    mean = {g: statistics.fmean(R[i] for i in members) for g, members in by_group(e).items()}
    centre, spread = statistics.fmean(mean.values()), statistics.stdev(mean.values())
    logp, old = batch.leaves["logp"].tolist(), e.logp.tolist()
    count, loss, grad = sum(map(bool, rows)), 0.0, torch.zeros(e.mask.shape, dtype=torch.double)
    for g, members in by_group(e).items():
        values = [R[i] for i in members]
        std = statistics.stdev(values) if len(values) > 1 else 0.0
        w = 1 / (1 + math.exp(-3.0 * (answer_entropy([e.extras["answer"][i] for i in members], 2) - 0.5)))
        between = (mean[g] - centre) / (spread + 1e-6)
        for i in members:
            for t in rows[i]:
                r = math.exp(logp[i][t] - old[i][t])
                for weight, A in ((w, (R[i] - mean[g]) / (std + 1e-6)), (1 - w, between)):
                    term, pull = clipped(r, A, 0.2, 0.2, dual=3.0)
                    loss += weight * term / len(rows[i]) / count
                    grad[i, t] += weight * pull * r / len(rows[i]) / count
    found = algorithm.objective(e, batch.evaluation())
    assert found.loss.item() == pytest.approx(loss, rel=1e-12)
    torch.testing.assert_close(torch.autograd.grad(found.loss, batch.leaves["logp"])[0], grad, rtol=1e-9, atol=1e-12)


def test_copo_at_its_two_ends() -> None:
    tree, policy = digits()
    behaviour = TabularPolicy(tree, spread=0.9, seed=7, critic=True)
    batch = batch_of(tree, policy, behaviour=behaviour)
    grpo = po.method("grpo", kl=0).but(**{"objective.trust.dual": 3.0})
    same(slope(po.method("copo", centre=-100.0), batch, policy), slope(grpo, batch, policy))
    across = grpo.but(credit=AcrossGroups())
    same(slope(po.method("copo", centre=100.0), batch, policy), slope(across, batch, policy))


def test_answer_entropy_and_its_weights() -> None:
    extras = {"answer": list("aabc") + list("xxxx") + ["a", "a", "b"]}
    group = torch.tensor([0] * 4 + [1] * 4 + [2] * 3)
    batch = po.Experience(mask=torch.ones(11, 1).bool(), group=group, extras=extras)
    expected = [1.5] * 4 + [0.0] * 4 + [answer_entropy(["a", "a", "b"], 2)] * 3
    assert AnswerEntropy()(batch).tolist() == pytest.approx(expected)
    assert AnswerEntropy(base=math.e)(batch)[0].item() == pytest.approx(1.5 * math.log(2))
    up, down = (LogisticMeasure(of=AnswerEntropy(), slope=s, centre=1.0)(batch) for s in (20.0, -20.0))
    torch.testing.assert_close(up + down, torch.ones_like(up))
    assert up[0].item() == pytest.approx(1 / (1 + math.exp(-10)))
    with pytest.raises(ValueError, match="base must be > 1"):
        AnswerEntropy(base=1.0)


def test_across_groups_counts_each_group_once() -> None:
    reward = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0]).double()
    group = torch.tensor([3, 3, 3, 3, 1, 1, 2])
    batch = po.Experience(mask=torch.ones(7, 1).bool(), reward=reward, group=group)
    std = statistics.stdev([1.0, 0.0, 1.0]) + 1e-6
    up, down = (1 - 2 / 3) / std, (0 - 2 / 3) / std
    close(AcrossGroups()(batch), [up] * 4 + [down] * 2 + [up])
    assert AcrossGroups()(batch[:4]).count_nonzero() == 0
    with pytest.raises(ValueError, match="eps must be > 0"):
        AcrossGroups(eps=0.0)


def test_voices_are_refused_where_nobody_left_them() -> None:
    batch = random_batch(0)
    bare = po.Experience(mask=batch.mask, logp=batch.experience.logp, advantage=batch.experience.advantage)
    with pytest.raises(ExperienceError, match=r"PerAdvantageSurrogate needs experience.extras\['voices'\]"):
        Surrogate(trust=PerAdvantageSurrogate())(bare, batch.evaluation())


def test_voices_stay_with_their_rows_and_add_up() -> None:
    part = MultiAdvantage(
        shares=[
            WeightedAdvantage(credit=RelativeAdvantage(), weight=0.25),
            WeightedAdvantage(credit=AcrossGroups(), weight=2.0),
        ]
    )
    batch = random_batch(2).experience
    credited = part.credited(batch)
    voices = credited.extras["voices"]
    torch.testing.assert_close(voices[..., 0], 0.25 * RelativeAdvantage()(batch))
    torch.testing.assert_close(voices.sum(-1), credited.advantage)
    assert torch.equal(credited[[3, 1]].extras["voices"], voices[[3, 1]])


# What the lab and the language loop provide -------------------------------------------------------------------


def test_trees_have_kinds_and_pay_what_is_drawn() -> None:
    tree = TokenTree.bandit([[0.3, 0.0], [0.9, 1.0]], kinds=["easy", "hard"])
    assert tree.leaves().extras["kind"] == ["easy", "easy", "hard", "hard"]
    with pytest.raises(ValueError, match="2 prompts need as many kinds, found 1"):
        TokenTree.bandit([[0.3, 0.0], [0.9, 1.0]], kinds=["easy"])
    source = TreeSource(
        tree, TabularPolicy(tree), rows=8, draw=lambda batch, g: torch.bernoulli(batch.outcome, generator=g)
    )
    paid = torch.cat([source.rollout(source.take(2), 500, po.Support()).outcome for _ in range(4)])
    assert set(paid.tolist()) == {0.0, 1.0}
    assert paid.mean().item() == pytest.approx((0.3 + 0.0 + 0.9 + 1.0) / 4, abs=0.03)
