"""Methods that predict success, against their formulas written out in plain Python."""

from __future__ import annotations

import pytest
import torch

import polopt as po
from polopt.credit import GroupMean, LeaveOneOut, RelativeAdvantage
from polopt.features.rows import RowField
from polopt.fields import ExperienceError
from polopt.methods.v0_5 import ShrunkMean, trust_in_mean

PRIOR = RowField(name="predicted")
SEEDS = range(4)


def guessed(seed: int, low: float = 0.0, high: float = 1.0) -> po.Experience:
    """Groups of 1 to 6 rows with returns of `low` and `high`, and a rate predicted of each group; in mixed order."""
    g = torch.Generator().manual_seed(seed)
    group = torch.arange(12).repeat_interleave(torch.randint(1, 7, (12,), generator=g))
    rate, right = torch.rand(12, generator=g).double(), torch.rand(12, generator=g).double()
    won = torch.rand(len(group), generator=g) < right[group]
    returns = torch.where(won, high, low).double()
    batch = po.Experience(
        mask=torch.ones(len(group), 2).bool(), reward=returns, group=group, extras={"predicted": rate[group]}
    )
    return batch[torch.randperm(len(group), generator=g)]


def plain_baseline(returns: list[float], prior: float, unit: float) -> float:
    """Shrinkage as the paper has it, of one group."""
    if not returns:
        return prior
    k, mean = len(returns), sum(returns) / len(returns)
    noise = unit / k
    off = max(0.0, (mean - prior) ** 2 - noise)
    weight = off / (off + noise)
    return weight * mean + (1 - weight) * prior


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize(("low", "high", "unit"), [(0.0, 1.0, 0.25), (-1.0, 1.0, 1.0)])
def test_the_baseline_is_the_papers(seed: int, others: bool, low: float, high: float, unit: float) -> None:
    batch = guessed(seed, low, high)
    found = ShrunkMean(prior=PRIOR, low=low, high=high, others=others)(batch, batch.reward)
    fused = 0
    for i, group in enumerate(batch.group.tolist()):
        rows = [j for j, g in enumerate(batch.group.tolist()) if g == group and not (others and j == i)]
        prior = low + (high - low) * float(batch.extras["predicted"][i])
        expected = plain_baseline([float(batch.reward[j]) for j in rows], prior, unit)
        assert float(found[i]) == pytest.approx(expected, rel=1e-12, abs=1e-14)
        fused += abs(expected - prior) > 1e-3
    assert fused > 3


def test_returns_of_0_and_1_are_returns_of_minus_1_and_1_rescaled() -> None:
    batch = guessed(1)
    plain = ShrunkMean(prior=PRIOR)(batch, batch.reward)
    signed = ShrunkMean(prior=PRIOR, low=-1.0)(batch, 2 * batch.reward - 1)
    torch.testing.assert_close(2 * plain - 1, signed, rtol=1e-12, atol=1e-14)


def test_weight_1_is_the_group_mean_and_weight_0_the_prior() -> None:
    batch = guessed(2)
    of = lambda **settings: ShrunkMean(prior=PRIOR, **settings)(batch, batch.reward)  # noqa: E731
    torch.testing.assert_close(of(weight=1.0), GroupMean()(batch, batch.reward), rtol=1e-12, atol=1e-14)
    assert torch.equal(of(weight=0.0), batch.extras["predicted"])
    alone = po.ops.group_size(batch.group) == 1
    assert alone.any()
    others = of(weight=1.0, others=True)
    loo = LeaveOneOut()(batch, batch.reward)
    torch.testing.assert_close(others[~alone], loo[~alone], rtol=1e-12, atol=1e-14)
    assert torch.equal(others[alone], batch.extras["predicted"][alone])


def test_a_prior_that_chance_explains_is_kept_whole() -> None:
    """|mean - prior| <= 1 / sqrt(k), for returns of -1 and 1."""
    for k in (4, 16):
        mean, edge = torch.zeros(3).double(), k**-0.5
        prior = torch.tensor([edge * 0.99, edge * 1.01, 1.0]).double()
        weight = trust_in_mean(mean, prior, torch.full_like(mean, 1 / k))
        assert weight[0] == 0
        assert 0 < weight[1] < weight[2] < 1


def test_leaving_the_row_out_the_policy_gradient_has_no_bias() -> None:
    """E[(R_i - b_i) score_i] over all outcomes of a group of three; the row's own part biases the plain baseline."""
    p, k = 0.3, 3
    bias = {}
    for others in (False, True):
        baseline, total = ShrunkMean(prior=PRIOR, others=others), 0.0
        for code in range(2**k):
            won = [(code >> i) & 1 for i in range(k)]
            odds = p ** sum(won) * (1 - p) ** (k - sum(won))
            returns = torch.tensor(won, dtype=torch.float64)
            rate = torch.full((k,), 0.9, dtype=torch.float64)
            group = torch.zeros(k, dtype=torch.long)
            batch = po.Experience(mask=torch.ones(k, 1).bool(), group=group, extras={"predicted": rate})
            advantage = returns - baseline(batch, returns)
            total += odds * float((advantage * (returns - p)).mean())  # d log pi / d logit of a Bernoulli
        bias[others] = total - p * (1 - p)
    assert abs(bias[True]) < 1e-15
    assert bias[False] < -1e-3


def test_a_group_of_equal_returns_still_teaches() -> None:
    batch = po.Experience(
        mask=torch.ones(4, 1).bool(),
        reward=torch.ones(4, dtype=torch.float64),
        group=torch.zeros(4, dtype=torch.long),
        extras={"predicted": torch.full((4,), 0.9, dtype=torch.float64)},
    )
    shrunk = RelativeAdvantage(baseline=ShrunkMean(prior=PRIOR), scale=None)(batch)
    torch.testing.assert_close(shrunk, torch.full((4, 1), 0.1, dtype=torch.float64), rtol=1e-12, atol=1e-14)
    assert torch.equal(RelativeAdvantage(scale=None)(batch), torch.zeros(4, 1, dtype=torch.float64))


def test_what_is_no_rate_and_no_return_is_refused() -> None:
    batch = guessed(0)
    with pytest.raises(ExperienceError, match=r"prior success rate in \[0, 1\]"):
        ShrunkMean(prior=PRIOR)(batch.replace(extras={"predicted": batch.extras["predicted"] + 1}), batch.reward)
    with pytest.raises(ExperienceError, match=r"returns in \[0, 1\]"):
        ShrunkMean(prior=PRIOR)(batch, 2 * batch.reward - 1)
    nan = batch.extras["predicted"] * float("nan")
    with pytest.raises(ExperienceError, match="prior"):
        ShrunkMean(prior=PRIOR)(batch.replace(extras={"predicted": nan}), batch.reward)
    with pytest.raises(ValueError, match="low < high"):
        ShrunkMean(prior=PRIOR, low=1.0)
    with pytest.raises(ValueError, match="weight"):
        ShrunkMean(prior=PRIOR, weight=1.5)
