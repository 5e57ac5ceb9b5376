"""Labels of the steps of searches, and votes of answers with the scores of a process model."""

from __future__ import annotations

import math

import pytest
import torch

from polopt.lab import TabularPolicy, TokenTree
from polopt.lab.source import TreeSource
from polopt.methods.meds3 import StepValueSearch, VoteSum

ANSWERS, SCORES = ["a", "b", "b", "c", "a"], [0.3, 0.2, 0.25, 0.5, 0.1]


@pytest.mark.parametrize(
    ("votes", "place"),
    [
        ("sum", 3),  # c has 0.5, b 0.45, a 0.4
        ("count", 0),  # a and b have two each, and a's first has the highest score of all four
        ("best", 3),
    ],
)
def test_by_hand(votes: str, place: int) -> None:
    assert VoteSum(candidates=5, votes=votes).chosen(ANSWERS, SCORES) == place


def test_the_sum_of_a_frequent_answer_can_win() -> None:
    assert VoteSum(candidates=5).chosen(["x", "y", "y"], [0.5, 0.3, 0.3]) == 1
    assert VoteSum(candidates=5, votes="best").chosen(["x", "y", "y"], [0.5, 0.3, 0.3]) == 0
    assert VoteSum(candidates=2).chosen(["x", "y"], [0.5, 0.5]) == 0  # the first of equals


def test_the_score_is_read_before_the_last_decision() -> None:
    """Two answers of a token and a stop token: the critic prefers the rarer one behind its token."""
    tree = TokenTree(3, [(1, 0), (2, 0)], lambda prompt, answer: float(answer[0] == 2), prompts=2)
    policy = TabularPolicy(tree, critic=True)
    leaves = tree.leaves()
    with torch.no_grad():
        for row in range(len(leaves)):
            token, stop = tree.nodes[row, tree.start], tree.nodes[row, tree.start + 1]
            policy.logits[token] = torch.tensor([0.0, math.log(4), 0.0])
            policy.values[stop] = 6.0 if leaves.extras["tokens"][row, tree.start] == 2 else -6.0
    source = TreeSource(tree, policy, rows=64, seed=0)
    chosen = VoteSum(candidates=30)(source, torch.tensor([0, 1, 0]))
    assert len(chosen) == 3
    assert chosen.outcome.tolist() == [1.0, 1.0, 1.0]
    # A majority takes the likelier one.
    assert VoteSum(candidates=30, votes="count")(source, torch.tensor([0, 1])).outcome.tolist() == [0.0, 0.0]


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="candidates must be >= 1"):
        VoteSum(candidates=0)
    with pytest.raises((ValueError, TypeError), match="votes"):
        VoteSum(votes="most")  # type: ignore[arg-type]


def test_the_steps_that_were_completed_have_labels_and_no_others() -> None:
    """In answers of five steps, of which most nodes were never expanded."""
    tree = TokenTree.full(2, 5, lambda prompt, answer: float(sum(answer) > 2), prompts=3)
    policy = TabularPolicy(tree, spread=0.5, seed=1, critic=True)
    source = TreeSource(tree, policy, rows=24, seed=3)
    search = StepValueSearch(expansions=3, width=2, step_length=1)
    rows, trees = search.search(source, source.take(3))
    batch = search.learned(source, rows, trees)
    assert len(batch) == sum(1 for root in trees for _ in root.leaves())
    seen = 0
    for row in range(len(batch)):
        node = trees[int(batch.group[row])]
        columns = batch.mask[row].nonzero().flatten().tolist()
        for place, column in enumerate(columns):
            label = float(batch.extras["step_label"][row, column])
            last = column == columns[-1]
            assert bool(batch.extras["step_labelled"][row, column]) == (last or (place > 0 and node.expanded))
            if last:
                assert label == float(batch.outcome[row])
            elif place and node.expanded:
                assert label == node.drawn
                seen += 1
            node = node.children[(int(batch.extras["tokens"][row, column]),)]
    assert seen
