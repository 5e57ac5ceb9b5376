"""These programs measure what the paper of REINFORCE with a baseline claims."""

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.credit import MovingAverage
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree, expectation, train
from polopt.lab.effects import More, effect
from polopt.lab.progress import learned, raised, uneven
from polopt.methods.reinforce import reinforce
from polopt.methods.reinforce_baseline import reinforce_baseline


def positive() -> tuple[TokenTree, TabularPolicy]:
    """Returns a bandit whose rewards are all at least 1, and a policy."""
    tree = TokenTree.bandit([1.0, 1.2, 1.5, 2.0, 3.0, 3.5])
    return tree, TabularPolicy(tree, spread=1.0, seed=3)


@claim(
    "No constant baseline moves the expected gradient; the optimal one has the least variance.",
    kind="theory",
    baseline="no baseline",
)
def optimal_constant() -> Finding:
    tree, policy = positive()
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


@claim(
    "The average return of five earlier batches leaves the expected gradient alone and most of the noise out.",
    kind="part",
    baseline="REINFORCE",
)
def average_return() -> Finding:
    tree, policy = positive()
    algorithm = reinforce_baseline()
    train(algorithm, tree, policy, steps=5, rate=0.0, rows=64)
    ours, plain = expectation(algorithm, tree, policy), expectation(reinforce(), tree, policy)
    return Finding(
        measured={"relative bias": ours.relative_bias, "variance ratio": ours.variance / plain.variance},
        criterion="relative bias < 1e-10; variance < 0.2 of REINFORCE's (that of the true mean is 0.15)",
        holds=ours.relative_bias < 1e-10 and ours.variance < 0.2 * plain.variance,
    )


@effect(
    "In as many answers it has learned more than without a baseline, if rewards are far from 0.",
    kind="headline",
    method=lambda: reinforce_baseline(group=4),
    controls={"reinforce": lambda: reinforce(group=4)},
    step_sizes=(8.0, 16.0, 32.0, 64.0, 128.0),
    criteria=[More("mean reward", by=0.05)],
    budget="answers",
    cost="slow",
    note="Rewards are 1 and 2. With 0 and 1, see the next claim.",
)
def learns_more(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    found = learned(algorithm, raised(uneven(seed)), steps=40, step_size=step_size, seed=seed)
    return {"mean reward": found["mean success"], "answers": found["answers"]}


@effect(
    "With rewards 0 and 1, too.",
    kind="limit",
    method=lambda: reinforce_baseline(group=4),
    controls={"reinforce": lambda: reinforce(group=4)},
    step_sizes=(8.0, 16.0, 32.0, 64.0, 128.0, 256.0),
    criteria=[More("mean success", by=0.0)],
    budget="answers",
    cost="slow",
    refuted=True,
    note="Wrong answers are worth 0, and teach REINFORCE nothing: no noise comes from them either.",
)
def right_or_wrong(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return learned(algorithm, uneven(seed), steps=40, step_size=step_size, seed=seed)


@mutation("The average is not corrected for its start at zero.", kills=average_return)
def starts_at_zero(replace: Replace) -> None:
    def forward(self: MovingAverage, _: Experience, returns: torch.Tensor) -> torch.Tensor:
        total = self.get_buffer("total")
        average = total.to(returns.dtype).clone()
        if self.training:
            total.mul_(self.decay).add_((1 - self.decay) * returns.mean().double())
        return average.expand_as(returns)

    replace(MovingAverage, "forward", forward)
