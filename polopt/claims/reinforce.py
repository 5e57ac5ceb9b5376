"""These programs measure what the paper of REINFORCE claims."""

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab import expectation
from polopt.lab.problems import lengths
from polopt.methods.reinforce import reinforce
from polopt.objectives import SequenceMean, SequenceSum


@claim(
    "The expected gradient is the exact one, whatever the lengths.",
    kind="identity",
    baseline="mean over each row's tokens",
)
def unbiased() -> Finding:
    tree, policy = lengths()
    ours = expectation(reinforce(), tree, policy)
    mean = expectation(reinforce().but(**{"objective.aggregate": SequenceMean()}), tree, policy)
    return Finding(
        measured={"relative bias": ours.relative_bias, "cosine": ours.cosine, "token mean: cosine": mean.cosine},
        criterion="relative bias < 1e-10; the token mean's cosine < 0.99",
        holds=ours.relative_bias < 1e-10 and mean.cosine < 0.99,
    )


@mutation("Each row is a mean over its tokens.", kills=unbiased)
def row_mean(replace: Replace) -> None:
    mean = SequenceMean()
    replace(SequenceSum, "forward", lambda self, terms, experience: mean.forward(terms, experience))
