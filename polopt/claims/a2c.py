"""These programs measure what the paper of A2C claims."""

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab import expectation
from polopt.lab.problems import digits
from polopt.methods.a2c import a2c
from polopt.objectives import SequenceSum
from polopt.rewards import OutcomeReward
from polopt.sampling import Rollouts
from polopt.updates import AdamW


def on_answers(lam: float = 1.0) -> Algorithm:
    """A2C on whole answers, without the critic's own loss."""
    return a2c(gamma=1.0, lam=lam).but(
        {"objective.regularise": [], "objective.aggregate": SequenceSum(length=1)},
        sampling=Rollouts(group=1),
        reward=OutcomeReward(),
        update=AdamW(),
    )


@claim(
    "Its gradient is unbiased with any critic, where fragments end with their episodes.",
    kind="identity",
    baseline="one-step differences of the same critic: lam = 0",
)
def any_critic() -> Finding:
    tree, policy = digits()
    policy = type(policy)(tree, spread=0.5, seed=0, critic=True)
    assert policy.values is not None
    with torch.no_grad():
        policy.values.copy_(torch.randn(len(policy.values), generator=torch.Generator().manual_seed(41)).double())
    bias = {lam: expectation(on_answers(lam), tree, policy).relative_bias for lam in (1.0, 0.0)}
    return Finding(
        measured={"relative bias": bias[1.0], "one step": bias[0.0]},
        criterion="with a random critic: relative bias < 1e-10; of one-step differences > 0.1",
        holds=bias[1.0] < 1e-10 and bias[0.0] > 0.1,
    )


@mutation("Each return ends after one step.", kills=any_critic)
def one_step(replace: Replace) -> None:
    right = ops.gae

    def short(*arguments: Tensor | float) -> Tensor:
        return right(*arguments[:-1], 0.0)  # type: ignore[arg-type]

    replace(ops, "gae", short)
