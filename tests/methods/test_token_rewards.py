"""TGDPO and RTO: what a trained policy says of single tokens, in a loss and as a reward."""

from __future__ import annotations

import math

import pytest
import torch

import polopt as po
from polopt.lab import TabularPolicy, TokenTree, train
from polopt.lab.source import TreeSource


def answers() -> tuple[TokenTree, TabularPolicy, TabularPolicy]:
    tree = TokenTree.full(3, 3, lambda _, answer: float(answer == (1, 2, 1)))
    guide = TabularPolicy(tree, spread=1.0, seed=1, tied=tree.positions)
    return tree, TabularPolicy(tree, critic=True), guide


def test_the_rewards_of_an_answer_add_up() -> None:
    tree, policy, guide = answers()
    rto = po.method("rto", dense=0.3, limit=math.inf, kl=0.02, outcome=2.0)
    source = TreeSource(
        tree, policy, rows=4, reference=TabularPolicy(tree), policies={"dpo": guide}, needs=rto.required_fields
    )
    leaves, _ = source.leaf_table()
    total = rto.reward(leaves).sum(1)
    laws = [tree.log_probabilities(law).detach()[0] for law in (guide, TabularPolicy(tree), policy)]
    expected = 0.3 * (laws[0] - laws[1]) - 0.02 * (laws[2] - laws[1]) + 2 * tree.outcome[0]
    torch.testing.assert_close(total, expected, rtol=0, atol=1e-12)


def test_a_tokens_reward_is_clipped_and_the_answers_is_not() -> None:
    tree, policy, guide = answers()
    rto = po.method("rto", dense=0.3, limit=0.1, kl=0.02)
    source = TreeSource(
        tree, policy, rows=4, reference=TabularPolicy(tree), policies={"dpo": guide}, needs=rto.required_fields
    )
    leaves, _ = source.leaf_table()
    reward = torch.where(leaves.mask, rto.reward(leaves), 0)
    last = leaves.mask & (leaves.mask.cumsum(1) == leaves.lengths[:, None])
    ratio = 0.3 * (leaves.extras["dpo_logp"] - leaves.ref_logp)
    expected = torch.where(leaves.mask, ratio.clamp(-0.1, 0.1), 0) + torch.where(last, leaves.outcome[:, None], 0)
    torch.testing.assert_close(reward, expected, rtol=0, atol=1e-12)  # the policy is the reference: no KL yet
    assert (ratio[leaves.mask].abs() > 0.1).any()


def test_rto_learns_from_a_policy_that_was_given() -> None:
    tree, policy, _ = answers()
    guide = TabularPolicy(tree, tied=tree.positions)
    with torch.no_grad():
        guide.logits[torch.arange(3), torch.tensor([1, 2, 1])] += 2.0
    ways = {"reference": TabularPolicy(tree), "policies": {"dpo": guide}}
    train(po.method("rto", group=8), tree, policy, steps=80, rate=4.0, rows=1, seed=0, **ways)
    assert tree.value(policy) > 0.8


def test_a_policy_that_nobody_gave_is_named() -> None:
    tree, policy, _ = answers()
    with pytest.raises(Exception, match="dpo_logp"):
        train(po.method("rto"), tree, policy, steps=1, rate=1.0, reference=TabularPolicy(tree))


def test_positions_count_the_decisions_before() -> None:
    tree = TokenTree(3, [(0,), (1, 0), (1, 1, 2)], lambda _, answer: 0.0, prompts=2)
    found = {
        (int(n), t - tree.start)
        for row in range(6)
        for t, n in enumerate(tree.nodes[row])
        if tree.leaves().mask[row, t]
    }
    assert sorted(found) == sorted({(int(node), int(tree.positions[node])) for node, _ in found})
    assert sorted(tree.positions.tolist()) == [0, 0, 1, 1, 2, 2]
