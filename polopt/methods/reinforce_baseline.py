"""REINFORCE with a baseline: the same gradient on average, with less noise."""

import torch

from polopt.algorithm import Algorithm
from polopt.credit import Baseline, MovingAverage, RelativeAdvantage
from polopt.lab import TabularPolicy, TokenTree, expectation
from polopt.method import Finding, Paper, method
from polopt.methods.reinforce import reinforce
from polopt.objectives import PolicyGradient, SequenceSum, Surrogate
from polopt.sampling import Rollouts


@method(
    paper=Paper(
        title="Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning",
        authors="Williams, Ronald J.",
        year=1992,
        venue="Machine Learning 8, 229-256",
    ),
    changes="REINFORCE with the return measured from a baseline that does not depend on the row itself.",
    room="credit",
    tier="faithful",
)
def reinforce_baseline(*, baseline: Baseline = MovingAverage(decay=0.9), group: int = 1) -> Algorithm:  # noqa: B008
    """L = -(1/B) sum_i (R_i - b) sum_t logp_it.

    Any b that is independent of row i leaves the expected gradient alone. The default is the average return of
    earlier batches, 0 for the first. The batch's own mean, which contains row i, shrinks the gradient by 1 - 1/B. The
    constant of least variance is E[|g|^2 R] / E[|g|^2] with g the row's score; it is close to the mean.
    """
    return Algorithm(
        sampling=Rollouts(group=group),
        credit=RelativeAdvantage(
            baseline=baseline.but(), scale=None
        ),  # a copy: two algorithms never share their average
        objective=Surrogate(ratio=None, trust=PolicyGradient(), aggregate=SequenceSum(length=1)),
    )


@reinforce_baseline.claim(
    "No constant baseline moves the expected gradient; the optimal one has the least variance.",
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
