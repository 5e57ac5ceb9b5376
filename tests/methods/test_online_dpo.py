"""Online DPO: which answers are pairs, and who orders them."""

from __future__ import annotations

import pytest
import torch

from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.methods.online_dpo import online_dpo


def batch_of(group: int) -> tuple[TabularPolicy, Experience]:
    tree = TokenTree.full(5, 1, lambda prompt, answer: float(answer[0] % 3), prompts=3)
    policy, reference = TabularPolicy(tree, spread=1.0, seed=1), TabularPolicy(tree, spread=1.0, seed=2)
    source = TreeSource(tree, policy, rows=3 * group, seed=5, reference=reference, needs=frozenset({"ref_logp"}))
    return policy, online_dpo(group=group).sampling(source)


def test_of_more_answers_the_best_and_the_worst_are_the_pair() -> None:
    _, batch = batch_of(6)
    chosen = online_dpo(group=6).compute_advantages(batch)
    for group in chosen.group.unique().tolist():
        all_of, kept = batch.outcome[batch.group == group], chosen.outcome[chosen.group == group]
        assert sorted(kept.tolist()) == [all_of.min().item(), all_of.max().item()]


def test_answers_that_are_alike_move_nothing() -> None:
    policy, batch = batch_of(2)
    level = torch.ones_like(batch.outcome)
    batch = batch.replace(outcome=level, reward=level)
    ready = online_dpo().compute_advantages(batch)
    loss = online_dpo().objective(ready, policy.evaluate(ready)).loss
    assert loss.item() == 0
    assert torch.autograd.grad(loss, policy.logits)[0].abs().max() == 0


@pytest.mark.parametrize("beta", [0.0, -1.0])
def test_beta_is_positive(beta: float) -> None:
    with pytest.raises(ValueError, match="scale must be > 0"):
        online_dpo(beta=beta)
