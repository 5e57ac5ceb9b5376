"""These programs measure what the paper of RLOO claims."""

from polopt.claim import Finding, Replace, claim, mutation
from polopt.credit import GroupMean, LeaveOneOut
from polopt.lab import TabularPolicy, TokenTree, expectation
from polopt.methods.rloo import rloo


@claim(
    "Unbiased at any group size.",
    kind="headline",
    baseline="the mean of all, the row included, which shrinks by 1 - 1/G",
)
def unbiased() -> Finding:
    tree = TokenTree.bandit([0.0, 0.2, 0.4, 0.5, 0.9, 1.0])
    policy = TabularPolicy(tree, spread=1.0, seed=3)
    algorithm = rloo(group=2, kl=0)
    ours = expectation(algorithm, tree, policy)
    own = algorithm.but(**{"credit.baseline": GroupMean()})
    with_self, shrunk = expectation(own, tree, policy), expectation(own, tree, policy, scale=0.5)
    return Finding(
        measured={
            "relative bias": ours.relative_bias,
            "with self": with_self.relative_bias,
            "with self, against half the gradient": shrunk.relative_bias,
        },
        criterion="relative bias < 1e-12; with self 0.5, and < 1e-12 against half the gradient",
        holds=ours.relative_bias < 1e-12 and abs(with_self.relative_bias - 0.5) < 1e-9 and shrunk.relative_bias < 1e-12,
    )


@mutation("The baseline is the mean of all rows, the row itself included.", kills=unbiased)
def own_row_included(replace: Replace) -> None:
    replace(LeaveOneOut, "forward", lambda self, experience, returns: GroupMean()(experience, returns))
