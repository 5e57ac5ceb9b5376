"""G2RPO: ranks as normal scores, within groups and then within kinds; its envelope and entropy band."""

from __future__ import annotations

import statistics

import pytest
import torch
from batches import random_batch
from graded_groups import SEEDS, by_group, close, graded
from loops import decisions
from scipy import stats
from sentences import same

import polopt as po
from polopt import ops
from polopt.features.groupings import SameKind, SamePrompt
from polopt.features.masks import TaskKindIs
from polopt.methods.g2rpo import EntropyBand, NormalScores
from polopt.methods.rlcm_scaling import LengthEnvelope
from polopt.objectives import Clip, Surrogate
from polopt.rewards import ConditionalReward


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
    assert LengthEnvelope(least=0, low=1, high=1, most=2).reads == frozenset()
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
