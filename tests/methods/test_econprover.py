"""The cheapest right answers, prefixes that part the tasks, and success brought back."""

from __future__ import annotations

import pytest
import torch
from batches import random_batch

import polopt as po
from polopt.claims.problems.alike import PROBLEMS, Alike, alike
from polopt.features import IsCorrect
from polopt.methods.econprover import ShortestCorrect, TaggedPrompts
from polopt.part_diff import diff
from polopt.sampling import Rollouts


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("count", [1, 2])
def test_cheapest_against_brute_force(seed: int, count: int) -> None:
    e = random_batch(seed, B=27).experience
    kept = []
    for g in e.group.unique().tolist():
        right = [i for i in range(27) if e.group[i] == g and e.outcome[i] >= 0]
        kept += sorted(right, key=lambda i: (int(e.mask[i].sum()), i))[:count]
    assert ShortestCorrect(count=count, right=IsCorrect(threshold=0.0))(e).extras["row"].tolist() == sorted(kept)


def test_each_task_is_asked_with_the_prefix_of_its_part() -> None:
    tree, policy, _ = alike()
    variants = {TaggedPrompts().text(i): torch.arange(PROBLEMS) + PROBLEMS * (1 + i) for i in range(8)}
    source = Alike(tree, policy, rows=8 * PROBLEMS, variants=variants)
    batch = Rollouts(group=8, guide=TaggedPrompts())(source)
    index, leaf = batch.extras["index"], batch.extras["leaf"]
    assert set(index.tolist()) == set(range(PROBLEMS))
    prompt = leaf // len(tree.answers)
    assert torch.equal(prompt % PROBLEMS, index)
    assert torch.equal(prompt // PROBLEMS, 1 + index // 4)
    tasks, starts = TaggedPrompts(count=3, wording=" <{number}>")(source, torch.tensor([0, 10, 11, 21, 22, 31]))
    assert [start.hint for start in starts] == [" <0>", " <0>", " <1>", " <1>", " <2>", " <2>"]
    assert not any(start.hidden or start.given for start in starts)
    assert tasks.tolist() == [0, 10, 11, 21, 22, 31]


def test_one_empty_prefix_is_ppo() -> None:
    ppo = po.method("ppo", group=8)
    assert diff(po.method("econprover", prefixes=1, wording=""), ppo) == []
    assert {p for p, *_ in diff(po.method("econprover"), ppo)} == {"sampling.guide"}
    raft = po.method("raft", group=8)
    assert {p for p, *_ in diff(po.method("econprover", stage=1), raft)} == {"sampling.select.0"}


def test_a_prefix_reaches_the_policy() -> None:
    from tiny_runs import Digits, policy

    from polopt.training.episode_player import EpisodePlayer
    from polopt.training.source import LanguageSource

    player = EpisodePlayer(policy("float64", world=Digits(6)), Digits(6), 3)

    def rollouts(guide: TaggedPrompts | None) -> po.Experience:
        source = LanguageSource(player, rows=12, seed=0, generator=torch.Generator().manual_seed(0))
        return Rollouts(group=2, guide=guide)(source)

    plain, one = rollouts(None), rollouts(TaggedPrompts(count=1, wording=""))
    assert torch.equal(plain.extras["tokens"], one.extras["tokens"])
    assert torch.equal(plain.rollout_logp, one.rollout_logp)
    batch = rollouts(TaggedPrompts(count=3))
    tokenizer = player.policy.tokenizer
    for row, index in zip(batch.extras["tokens"].tolist(), batch.extras["index"].tolist(), strict=True):
        assert f" #{index // 2}" in tokenizer.decode([t for t in row if t >= 0])


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="count must be >= 1, found 0"):
        TaggedPrompts(count=0)
    with pytest.raises(ValueError, match="or all prefixes are one; found 'x'"):
        TaggedPrompts(wording="x")
    with pytest.raises(ValueError, match="count must be >= 1, found 0"):
        ShortestCorrect(count=0)
    with pytest.raises(ValueError, match="stage must be 1, the switch, or 2, the prefixes, found 3"):
        po.method("econprover", stage=3)
