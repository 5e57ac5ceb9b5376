"""Three decisions that make an answer, with other words for the same thing between them."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.lab.measure import training
from polopt.lab.policy import TabularPolicy
from polopt.lab.source import TreeSource
from polopt.lab.tree import TokenTree
from polopt.methods.latr import LookaheadRollouts
from polopt.sampling import Lookahead

DECISIONS, WORDS = (0.58, 0.38, 0.04), (0.5, 0.45)


class Roads(NamedTuple):
    """A tree, a policy on it, and the columns at which it decides."""

    tree: TokenTree
    policy: TabularPolicy
    columns: Tensor

    @staticmethod
    def learn(algorithm: Algorithm, seed: int, most: int = 150, rate: float = 8.0) -> int:
        """Batches of one group until the policy is right half the time, on short roads."""
        tree, policy, _ = crossroads(filler=4)
        algorithm = algorithm.but({"sampling.look.windows": (4,)})
        loop = training(algorithm, tree, policy, rate=rate, seed=seed)
        for batches in range(1, most + 1):
            next(loop)
            if tree.value(policy) >= 0.5:
                return batches
        return most


def crossroads(filler: int = 20) -> Roads:
    """Three times: a decision among three ways, of probabilities 0.58, 0.38 and 0.04, `filler` tokens that repeat which
    it was, one of two words that do not matter, of probabilities 10 / 19 and 9 / 19, and `filler` tokens again. Right
    is the second way at every decision."""
    answers, ways = [], list(itertools.product(range(3), repeat=3))
    for way, words in itertools.product(ways, itertools.product(range(2), repeat=3)):
        stretches = [[w, *[3 + w] * filler, word, *[3 + w] * filler] for w, word in zip(way, words, strict=True)]
        answers.append(tuple(itertools.chain(*stretches)))
    right = torch.tensor([[float(a[0] == a[2 * filler + 2] == a[4 * filler + 4] == 1) for a in answers]])
    tree = TokenTree(6, answers, right)
    policy, nodes = TabularPolicy(tree), tree.nodes
    columns = tree.start + torch.arange(3) * (2 * filler + 2)
    with torch.no_grad():
        for at, probs in ((columns, DECISIONS), (columns + filler + 1, WORDS)):
            policy.logits[nodes[:, at].unique(), : len(probs)] = torch.tensor(probs).double().log()
    return Roads(tree, policy, columns)


def distinct(roads: Roads, rule: Lookahead, share: float, groups: int = 200) -> tuple[float, float]:
    """Returns how many different ways a group of 8 takes, and how often one of them is right; mean over groups."""
    tree, policy, columns = roads
    # With a tree alone nothing is left to chance, but for what follows it.
    groups = groups if share == 0 else 4
    source = TreeSource(tree, policy, rows=8 * groups)
    batch = LookaheadRollouts(group=8, look=rule, share=share)(source)
    ways = batch.extras["tokens"][:, columns]
    different = [len(ways[batch.group == g].unique(dim=0)) for g in range(groups)]
    solved = [float(batch.outcome[batch.group == g].max()) for g in range(groups)]
    return sum(different) / groups, sum(solved) / groups


class Passed(NamedTuple):
    """Shares of the tests that branches stood: of branches at decisions, and at words that do not matter."""

    decisions: float
    paraphrases: float


class _Watched(Lookahead):
    """Counts the branches that survive pruning. The tokens after a branching show whether it was a decision."""

    def setup(self) -> None:
        super().setup()
        self.found: dict[bool, list[bool]] = {True: [], False: []}

    def same(self, a: Any, b: Any) -> bool:
        dropped = super().same(a, b)
        self.found[a[1] != b[1]].append(not dropped)
        return dropped


def branchings(roads: Roads, rule: Lookahead) -> Passed:
    """The branches of one tree of 8 that survive pruning."""
    watched = _Watched(**rule.settings())
    source = TreeSource(roads.tree, roads.policy, rows=8)
    part = LookaheadRollouts(group=8, look=watched, share=1.0)
    part(source)
    assert isinstance(part.look, _Watched)
    found = part.look.found
    return Passed(*(sum(x) / max(len(x), 1) for x in (found[True], found[False])))
