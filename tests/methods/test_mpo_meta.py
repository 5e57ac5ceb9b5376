"""MPO: what it is without its meta step."""

from __future__ import annotations

import copy

import pytest
import torch

import polopt as po
from polopt.lab import TabularPolicy, train
from polopt.lab.problems import digits
from polopt.methods.mpo_meta import AuditedRubric, ProgramGrader
from polopt.part_diff import diff
from polopt.rewards import Item, RubricReward
from polopt.sampling.parts import RolloutRequest


def test_it_is_ppo_with_another_reward() -> None:
    assert [path for path, *_ in diff(po.method("ppo"), po.method("mpo-meta"))] == ["reward.terms.0"]
    assert [path for path, *_ in diff(po.method("ppo", kl=0), po.method("mpo-meta", kl=0))] == ["reward"]


def learned(algorithm: po.Algorithm) -> tuple[torch.Tensor, po.Algorithm]:
    tree, policy = digits()
    train(algorithm, tree, policy, steps=6, rate=1.0, rows=16, seed=3, reference=copy.deepcopy(policy))
    return policy.logits.detach(), algorithm


@pytest.mark.parametrize("meta", [None, AuditedRubric(truth="outcome")])
def test_never_rewritten_is_ppo_with_a_fixed_judge(meta: AuditedRubric | None) -> None:
    items = [Item(name="outcome"), Item(name="characters", most=5)]
    fixed = RubricReward(items=items, grader=ProgramGrader(), meta=None)
    wanted, _ = learned(po.method("ppo").but(**{"reward.terms.0": fixed}))
    found, _ = learned(po.method("mpo-meta", items=items, meta=meta, every=10**9))
    assert torch.equal(found, wanted)
    other = AuditedRubric(truth="extras.leaf")  # which has little to do with either
    moved, algorithm = learned(po.method("mpo-meta", items=items, meta=other, every=2))
    assert len(algorithm.reward.terms[0].rubrics) == 4
    assert not torch.equal(moved, wanted)


def test_one_item_that_is_the_outcome_is_ppo() -> None:
    wanted, _ = learned(po.method("ppo"))
    found, _ = learned(po.method("mpo-meta", items=[Item(name="outcome")]))
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-8)


def test_the_policy_is_not_asked_what_the_rubric_says_of_it() -> None:
    """Marks of one batch change the rubric of the next: the reward of a batch is known before its audit."""
    tree, policy = digits()
    assert isinstance(policy, TabularPolicy)
    algorithm = po.method("mpo-meta", every=1, kl=0)
    batch = po.lab.TreeSource(tree, policy, rows=16).rollout(RolloutRequest(torch.tensor([0, 1]), 8, po.Support()))
    first = algorithm.reward(batch)
    assert torch.equal(algorithm.reward(batch), first)
    algorithm.step()
    assert len(algorithm.reward.rubrics) == 2
