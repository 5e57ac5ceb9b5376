"""These programs measure what the paper of SPO-tree claims."""

import torch

import polopt.methods.spo_tree as module
from polopt.claim import Finding, Replace, claim, mutation
from polopt.credit import GroupMean, LeaveOneOut, RelativeAdvantage
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.methods.spo_tree import TreeRollouts
from polopt.sampling import Rollouts

# Two tokens an edge.
WINDOW = 2


def _problem() -> tuple[TokenTree, TabularPolicy]:
    """Six tokens of two kinds, a random policy; four of one kind are right."""
    tree = TokenTree.full(2, 3 * WINDOW, lambda prompt, answer: float(sum(answer) >= 4))
    return tree, TabularPolicy(tree, spread=0.7, seed=2)


def _exact(tree: TokenTree, policy: TabularPolicy, leaf: torch.Tensor, level: int) -> torch.Tensor:
    """Returns what the two tokens of this level are worth on the way to each leaf."""
    values = torch.cat([tree.state_values(policy), tree.outcome.T], 1)[leaf]
    at = tree.start + WINDOW * level
    return values[:, at + WINDOW] - values[:, at]


def _found(credit: RelativeAdvantage, batch: Experience, tree: TokenTree, level: int) -> torch.Tensor:
    return credit(batch)[:, tree.start + WINDOW * level]


@claim(
    "A parent's value that includes the child shrinks the edge's advantage by 1 - 1/n; the other children's mean "
    "does not.",
    kind="identity",
    baseline="the mean of the other children",
)
def shrinks() -> Finding:
    tree, policy = _problem()
    source = TreeSource(tree, policy, rows=16 * 500, seed=0)
    batch = TreeRollouts(factors=(4, 3), window=WINDOW)(source)
    batch = batch[batch.extras["level"] == 0]
    exact = _exact(tree, policy, batch.extras["leaf"], 0)
    slope = {}
    for name, baseline in (("with the child", GroupMean()), ("without", LeaveOneOut())):
        found = _found(RelativeAdvantage(baseline=baseline, scale=None), batch, tree, 0)
        slope[name] = ((found * exact).mean() / exact.square().mean()).item()
    return Finding(
        measured=slope,
        criterion="slope on the exact advantage, 4 children: 0.75 within 0.05 with the child, 1 within 0.07 without",
        holds=abs(slope["with the child"] - 0.75) < 0.05 and abs(slope["without"] - 1) < 0.07,
    )


@claim(
    "For as many sampled tokens its advantages are nearer to the exact ones of their segments.",
    kind="headline",
    baseline="independent rollouts, each with its own advantage in its group on every token",
)
def nearer() -> Finding:
    tree, policy = _problem()
    credit = RelativeAdvantage(scale=None)
    branched, plain = (TreeSource(tree, policy, rows=rows, seed=1) for rows in (258, 88))
    off: list[torch.Tensor] = []
    broad: list[torch.Tensor] = []
    for _ in range(20):
        edges, rows = TreeRollouts(window=WINDOW)(branched), Rollouts(group=88)(plain)
        for level in range(3):
            level_edges = edges[edges.extras["level"] == level]
            for batch, errors in ((level_edges, off), (rows, broad)):
                exact = _exact(tree, policy, batch.extras["leaf"], level)
                errors.append((_found(credit, batch, tree, level) - exact).square())
    quotient = (torch.cat(broad).mean() / torch.cat(off).mean()).item()
    tokens = branched.decided / plain.decided
    return Finding(
        measured={"their squared error over the tree's": quotient, "the tree's tokens over theirs": tokens},
        criterion=">= 3x, with no more tokens",
        holds=quotient >= 3 and tokens <= 1,
    )


@mutation("A node is worth its best child, not its children's mean.", kills=shrinks)
def best_child(replace: Replace) -> None:
    def best(worth: torch.Tensor, children: torch.Tensor, parents: torch.Tensor) -> torch.Tensor:
        return worth.scatter_reduce(0, parents, children, "amax", include_self=False)

    replace(module, "_mean_of_children", best)


@mutation("Edges are compared with all of their level, not with their siblings.", kills=nearer)
def whole_level(replace: Replace) -> None:
    grow = TreeRollouts._grow

    def one_parent(
        self: TreeRollouts, source: TreeSource
    ) -> tuple[list[Experience], list[torch.Tensor], list[torch.Tensor]]:
        levels, parents, begins = grow(self, source)
        return levels, [torch.zeros_like(p) if depth else p for depth, p in enumerate(parents)], begins

    replace(TreeRollouts, "_grow", one_parent)
