"""RLUF, and the audience that it is tried on."""

from __future__ import annotations

import pytest
import torch

import polopt as po
from polopt.claims.problems.reactions import ARMS, CLOSING, Audience, TextTreeSource
from polopt.lab import TabularPolicy
from polopt.part_diff import diff
from polopt.rewards import LearnedJudge, OutcomeReward, OverlongPenalty, SumOfRewards
from polopt.sampling.parts import RolloutRequest


def batch(rows: int = 32) -> po.Experience:
    audience = Audience.make()
    policy = TabularPolicy(audience.tree(), spread=0.5)
    return TextTreeSource(audience, policy, rows=rows).rollout(RolloutRequest(torch.arange(8), rows // 8, po.Support()))


def test_rluf_is_grpo_with_another_reward() -> None:
    assert [path for path, *_ in diff(po.method("grpo", group=8), po.method("rluf"))] == ["reward"]
    with_safe = po.method("rluf", safe=OverlongPenalty(limit=3), weight=2.0).reward
    assert list(with_safe.weights) == [1.0, 1.0, 2.0]


def test_without_love_it_is_rlhf_with_the_other_rewards() -> None:
    b, safe = batch(), OverlongPenalty(limit=3)
    ours = po.method("rluf", weight=0.0, safe=safe, kl=0).compute_advantages(b)
    theirs = (
        po.method("grpo", group=8, kl=0).but(reward=SumOfRewards(terms=[OutcomeReward(), safe])).compute_advantages(b)
    )
    assert theirs.advantage.abs().max() > 0.1
    assert torch.equal(ours.advantage, theirs.advantage)
    alone = po.method("rluf", weight=0.0, kl=0).compute_advantages(b)
    assert torch.equal(alone.advantage, po.method("grpo", group=8, kl=0).compute_advantages(b).advantage)


def test_the_mix_is_the_sum_of_its_terms() -> None:
    b, love = batch(), LearnedJudge(link="sigmoid", seed=2)
    chance = torch.cat(
        [love.scorer([t.prompt], [a]) for t, a in zip(b.extras["task"], b.extras["answer"], strict=True)]
    )
    wanted = b.outcome + 3.0 * chance.sigmoid().float()
    torch.testing.assert_close(po.method("rluf", love=love, weight=3.0).reward(b), wanted, rtol=1e-6, atol=0)


class TestAudience:
    def test_the_truth_is_as_described(self) -> None:
        audience = Audience.make(seed=3)
        assert audience.chances.mean().item() == pytest.approx(0.02, rel=1e-9)
        for row, (w, h, c) in enumerate(ARMS):
            assert audience.helpful[:, row].tolist() == pytest.approx([h / 3 - 0.25 * c] * 8)
            assert all(mine[row].endswith(CLOSING) == bool(c) for mine in audience.answers)
            assert w < 3
        prompts, answers = audience.texts()
        assert len(set(zip(prompts, answers, strict=True))) == 8 * 24
        liked_more = audience.chances[:, [i for i, a in enumerate(ARMS) if a[2]]].mean()
        assert liked_more > 2 * audience.chances[:, [i for i, a in enumerate(ARMS) if not a[2]]].mean()

    def test_logs_have_the_true_chances(self) -> None:
        audience = Audience.make(rate=0.3)
        prompts, answers, liked = audience.log(20_000, torch.Generator().manual_seed(1))
        known = dict(zip(zip(*audience.texts(), strict=True), audience.chances.flatten().tolist(), strict=True))
        chance = torch.tensor([known[pair] for pair in zip(prompts, answers, strict=True)])
        for low, high in ((0.0, 0.1), (0.1, 0.4), (0.4, 1.0)):
            some = (chance >= low) & (chance < high)
            assert liked[some].mean().item() == pytest.approx(chance[some].mean().item(), abs=0.03)

    def test_the_source_speaks_in_texts(self) -> None:
        b, audience = batch(), Audience.make()
        for row, leaf in enumerate(b.extras["leaf"].tolist()):
            assert b.extras["answer"][row] == audience.answers[leaf // 24][leaf % 24]
            assert b.extras["task"][row].prompt == audience.prompts[leaf // 24]
            assert b.outcome[row] == audience.helpful[leaf // 24, leaf % 24]
