"""Going on inside a tree: the exact conditional distribution, values and costs."""

from __future__ import annotations

import pytest
import torch
from small_trees import stop_tree

import polopt as po
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.sampling.parts import RolloutRequest


def source_of(tree: TokenTree, rows: int = 8, seed: int = 0) -> TreeSource:
    return TreeSource(tree, TabularPolicy(tree, spread=1.0, seed=3), rows=rows, seed=seed, needs=frozenset({"entropy"}))


def test_branches_are_worth_what_their_state_is() -> None:
    """The mean outcome of branches is the exact value of the state, and no branch begins otherwise."""
    tree = stop_tree()
    source = source_of(tree)
    values = tree.state_values(source.policy)
    rows, columns = tree.leaves().mask.nonzero(as_tuple=True)
    n, leaf_table = 4000, source.leaf_table()[0]
    found = source.extend(leaf_table[rows], n, at=columns)
    worth = found.outcome.view(-1, n)
    error = worth.std(1) / n**0.5 + 1e-9
    z = (worth.mean(1) - values[rows, columns]) / error
    assert z.abs().max() < 4.5
    assert z.abs().mean() < 1.2
    tokens = found.extras["tokens"].view(len(rows), n, -1)
    for i, (row, t) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
        assert (tokens[i, :, :t] == tree.leaves().extras["tokens"][row, :t]).all()
    assert source.drawn == len(found)
    assert source.decided == int((found.lengths - (columns - tree.start).repeat_interleave(n)).sum())


def test_windows_give_the_same_distribution_as_whole_rows() -> None:
    tree = stop_tree(prompts=1)
    source, n = source_of(tree), 30_000
    rows = source.rollout(RolloutRequest(source.take(1), n, po.Support(), max_decisions=1))
    done = [rows[rows.terminated]]
    assert (rows.lengths == 1).all()
    while not rows.terminated.all():
        rows = source.extend(rows[~rows.terminated], 1, max_decisions=1)
        done.append(rows[rows.terminated])
    leaves = torch.cat([batch.extras["leaf"] for batch in done])
    expected = tree.log_probabilities(source.policy).exp().flatten().detach()
    seen = torch.bincount(leaves, minlength=len(expected)) / n
    error = (expected * (1 - expected) / n).sqrt()
    assert ((seen - expected) / error).abs().max() < 4.5
    assert sum(map(len, done)) == n
    whole = torch.cat([torch.where(b.mask, b.rollout_logp, 0).sum(1) for b in done])
    torch.testing.assert_close(whole.exp(), expected[leaves])
    assert source.decided == sum(int(b.lengths.sum()) for b in done)


def test_an_open_row_has_neither_ended_nor_been_paid() -> None:
    for reward in (lambda p, a: 1.0, lambda p, a: [0.5] * len(a)):
        tree = TokenTree.full(3, 3, reward, stop=2)
        batch = source_of(tree).rollout(RolloutRequest(torch.tensor([0]), 200, po.Support(), max_decisions=2))
        over = batch.terminated
        assert over.any()
        assert not over.all()
        assert not batch.truncated.any()
        assert (batch.lengths[~over] == 2).all()
        per_decision = tree.rewards is not None
        expected = 0.5 * batch.lengths if per_decision else over.double()
        torch.testing.assert_close(batch.outcome, expected.double())


def test_what_was_decided_before_keeps_its_log_probability() -> None:
    tree = stop_tree()
    source = source_of(tree)
    rows = source.rollout(RolloutRequest(source.take(2), 20, po.Support(), max_decisions=2))
    rows = rows[~rows.terminated]
    with torch.no_grad():
        source.policy.logits.add_(torch.randn(source.policy.logits.shape))
    source.refresh()
    after = source.extend(rows, 3)
    copies = torch.arange(len(rows)).repeat_interleave(3)
    old = rows.mask[copies]
    assert torch.equal(after.rollout_logp[old], rows.rollout_logp[copies][old])
    assert torch.equal(after.entropy[old], rows.entropy[copies][old])
    said = source.policy.evaluate(after, frozenset()).logp
    torch.testing.assert_close(after.rollout_logp[after.mask & ~old], said[after.mask & ~old])
    assert (after.rollout_logp[old] - said[old]).abs().max() > 0.1
    assert torch.equal(after.group, rows.group[copies])
    assert after.terminated.all()


def test_ended_rows_are_refused() -> None:
    source = source_of(stop_tree())
    with pytest.raises(ValueError, match="some rows have ended"):
        source.extend(source.rollout(RolloutRequest(source.take(2), 2, po.Support())), 1)
