"""These programs measure what the paper of REINFORCE with a baseline claims."""

import torch

from polopt.claim import Finding, claim
from polopt.lab import TabularPolicy, TokenTree, expectation
from polopt.methods.reinforce import reinforce


@claim(
    "No constant baseline moves the expected gradient; the optimal one has the least variance.",
    kind="theory",
    baseline="no baseline",
)
def optimal_constant() -> Finding:
    tree = TokenTree.bandit([1.0, 1.2, 1.5, 2.0, 3.0, 3.5])
    policy = TabularPolicy(tree, spread=1.0, seed=3)
    p = tree.log_probabilities(policy).detach().exp()[0]
    score = torch.eye(6, dtype=p.dtype) - p  # of a softmax, by arm
    weight = p * score.square().sum(1)
    constants = {
        "zero": 0.0,
        "mean": float(p @ tree.outcome[0]),
        "optimal": float(weight @ tree.outcome[0] / weight.sum()),
    }
    found = {n: expectation(reinforce().but(**{"reward.shift": -b}), tree, policy) for n, b in constants.items()}
    worst = max(f.relative_bias for f in found.values())
    return Finding(
        measured={"largest relative bias": worst, **{f"variance, {n}": f.variance for n, f in found.items()}},
        criterion="largest relative bias < 1e-10; variance optimal <= mean <= zero",
        holds=worst < 1e-10 and found["optimal"].variance <= found["mean"].variance <= found["zero"].variance,
    )
