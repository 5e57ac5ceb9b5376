"""Search trees of the lab: deep ones, exhausted ones, and what is refused."""

from __future__ import annotations

import pytest
import torch

from polopt.lab import TabularPolicy, TokenTree
from polopt.lab.source import TreeSource
from polopt.sampling import SearchNode, StepPairs, TreeSearch


def test_ways_of_thousands_of_steps_are_walked() -> None:
    root = node = SearchNode(0, 0, expanded=True)
    for step in range(5000):
        node.children[(step,)] = SearchNode(0, step + 1 if step < 4999 else -1, step)
        node = node.children[(step,)]
    assert sum(1 for _ in root.walk()) == 5001
    (way,) = root.leaves()
    assert (len(way), way[-1] is node, way[0].begin) == (5000, True, 0)


def test_a_tree_that_has_nothing_left_ends_the_search() -> None:
    tree = TokenTree.full(2, 2, lambda p, a: float(a == (1, 0)))
    source = TreeSource(tree, TabularPolicy(tree), rows=8)
    sampling = StepPairs(expansions=50, width=8, step_length=1)
    rows, (root,) = sampling.search(source, torch.zeros(1, dtype=torch.long))
    # The root and its two children: nothing else goes on.
    assert len(rows) == 3 * 8
    assert root.closed
    assert sampling.selected(root) is None
    assert sum(node.expanded for node in root.walk()) == 3
    pairs = sampling.learned(source, rows, [root])
    # The right answer is in the tree, so that the root and the first token 1 have a better and a worse step.
    assert pairs.extras["tokens"][0, tree.start] == 1
    assert len(pairs) == 4
    path = StepPairs(expansions=50, width=8, step_length=1, among="path").learned(source, rows, [root])
    assert torch.equal(path.extras["tokens"], pairs.extras["tokens"])
    assert len(StepPairs(margin=1.0).learned(source, rows, [root])) == 0


def test_bad_settings_are_refused() -> None:
    for settings in ({"expansions": 0}, {"width": 0}, {"exploration": -1.0}, {"step_length": 0}):
        with pytest.raises(ValueError, match=r"sampling\.StepPairs: need expansions"):
            StepPairs(**settings)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="margin must be >= 0"):
        StepPairs(margin=-0.1)
    with pytest.raises(NotImplementedError):
        TreeSearch().learned(None, None, [])  # type: ignore[arg-type]
