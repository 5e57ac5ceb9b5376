"""PPO-max: its switches one by one, against PPO and their formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dealt_batches import dealt, halves, nll
from sentences import batch_of, same, slope

import polopt as po
from polopt.credit import ClippedAdvantage, RelativeAdvantage
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.lab.problems import digits
from polopt.objectives import (
    EntropyTarget,
    Surrogate,
    TokenMean,
)
from polopt.part_diff import diff
from polopt.rewards import OutcomeReward, ScaledReward


def test_ppo_max_with_every_switch_off_is_ppo() -> None:
    off = po.method("secrets-rlhf-ppo-max", scale=False, whiten=True, value=0.5, kl=0.05)
    assert diff(off, po.method("ppo")) == []


def test_ppo_max_does_not_whiten_unless_told_to() -> None:
    plain, whitened = (
        po.method("secrets-rlhf-ppo-max", group=4),
        po.method("secrets-rlhf-ppo-max", group=4, whiten=True),
    )
    batch, _ = dealt(plain)
    judged = plain.with_advantages(batch)
    raw, white = judged.advantage, whitened.with_advantages(batch).advantage
    known = raw[batch.mask]
    expected = (known - known.mean()) / (known.std() + 1e-8)
    torch.testing.assert_close(white[batch.mask], expected, rtol=1e-9, atol=1e-12)
    assert abs(known.std().item() - 1) > 1e-3
    torch.testing.assert_close(raw, gae_by_loop(judged, lam=0.95), rtol=1e-9, atol=1e-12)


def gae_by_loop(batch: Experience, lam: float) -> torch.Tensor:
    """[B, T] with gamma 1 and value 0 behind a row's last decision."""
    found = torch.zeros(batch.mask.shape, dtype=batch.reward.dtype)
    for i, row in enumerate(batch.mask):
        places, later, ahead = row.nonzero().flatten().tolist(), 0.0, 0.0
        for t in reversed(places):
            error = batch.reward[i, t].item() + later - batch.value[i, t].item()
            ahead = error + lam * ahead
            later = batch.value[i, t].item()
            found[i, t] = ahead
    return found


def test_ppo_max_adds_what_it_says() -> None:
    on = po.method("secrets-rlhf-ppo-max", centred=True, reward_clip=0.3, advantage_clip=0.5, entropy=(0.1, 2.0))
    paths = {path for path, *_ in diff(po.method("secrets-rlhf-ppo-max"), on)}
    assert paths == {"reward.terms.0", "credit", "objective.regularise"}
    batch, policy = dealt(po.method("secrets-rlhf-ppo-max", group=4, ptx=0.7))
    plain, mixed = po.method("secrets-rlhf-ppo-max"), po.method("secrets-rlhf-ppo-max", ptx=0.7)
    own, shown = halves(batch)
    assert len(own) == len(shown) == 24
    same(slope(mixed, batch, policy), slope(plain, own, policy) + 0.7 * nll(shown, policy))


@pytest.mark.parametrize("centred", [False, True])
def test_scores_are_scaled_by_all_earlier_ones(centred: bool) -> None:
    part, seen = ScaledReward(reward=OutcomeReward(scale=3.0), centred=centred), list[float]()
    generator = torch.Generator().manual_seed(0)
    for size in (1, 4, 0, 7, 3):
        outcome = 5 + torch.randn(size, generator=generator, dtype=torch.double)
        found = part(Experience(mask=torch.ones(size, 2, dtype=torch.bool), outcome=outcome))
        std = np.std(seen, ddof=1) if len(seen) > 1 else 1.0
        mean = np.mean(seen) if centred and seen else 0.0
        np.testing.assert_allclose(found.numpy(), (3 * outcome.numpy() - mean) / std, rtol=1e-12)
        seen += (3 * outcome).tolist()
    before = part.state_dict()["count"].clone()
    part.eval()(Experience(mask=torch.ones(2, 2, dtype=torch.bool), outcome=torch.ones(2)))
    assert part.state_dict()["count"] == before == 15


def test_equal_scores_have_no_spread_to_divide_by() -> None:
    part = ScaledReward()
    for _ in range(3):
        found = part(Experience(mask=torch.ones(3, 1, dtype=torch.bool), outcome=torch.full((3,), 0.7)))
        assert found.tolist() == pytest.approx([0.7] * 3)


def test_a_spread_is_that_of_outcomes() -> None:
    part = ScaledReward(reward=po.rewards.KLPenalty())
    batch = Experience(
        mask=torch.ones(3, 2, dtype=torch.bool), rollout_logp=torch.zeros(3, 2), ref_logp=torch.zeros(3, 2)
    )
    with pytest.raises(
        ExperienceError, match=r"rewards\.ScaledReward needs one reward for each row, \[3\], found \[3, 2\]"
    ):
        part(batch)


@pytest.mark.parametrize("target", [0.2, 5.0])
def test_the_entropy_target_is_a_distance_of_means(target: float) -> None:
    tree, policy = digits()
    batch = po.method("grpo", kl=0.0).compute_advantages(batch_of(tree, policy))
    part = Surrogate(regularise=[EntropyTarget(coefficient=0.3, target=target)], aggregate=TokenMean())
    said = policy.evaluate(batch, frozenset({"entropy"}))
    mean = said.entropy[batch.mask].mean()
    found = part(batch, said)
    plain = Surrogate(aggregate=TokenMean())(batch, said).loss
    assert found.metrics["EntropyTarget"].item() == pytest.approx((mean - target).abs().item(), rel=1e-12)
    assert (found.loss - plain).item() == pytest.approx(0.3 * (mean - target).abs().item(), rel=1e-9)
    (expected,) = torch.autograd.grad(0.3 * (mean - target).abs(), policy.logits, retain_graph=True)
    (ours,) = torch.autograd.grad(found.loss - plain, policy.logits)
    same(ours, expected)


def test_advantages_and_rewards_are_clipped() -> None:
    tree, policy = digits()
    batch = batch_of(tree, policy)
    credit = RelativeAdvantage()
    plain = po.Algorithm(credit=credit).compute_advantages(batch).advantage
    found = po.Algorithm(credit=ClippedAdvantage(credit=credit, limit=0.6)).compute_advantages(batch).advantage
    assert plain.abs().max() > 0.6
    assert torch.equal(found, plain.clamp(-0.6, 0.6))
    with pytest.raises(ValueError, match=r"credit\.ClippedAdvantage: limit must be > 0, found 0"):
        ClippedAdvantage(credit=credit, limit=0)
    with pytest.raises(ValueError, match=r"rewards\.ClippedReward: limit must be > 0, found -1"):
        po.rewards.ClippedReward(reward=OutcomeReward(), limit=-1)
