"""These programs measure what the paper of REINFORCE claims."""

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab import expectation
from polopt.lab.effects import More, effect
from polopt.lab.problems import lengths
from polopt.lab.progress import learned
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


@effect(
    "It climbs to the best answers, whatever their lengths.",
    kind="headline",
    method=lambda: reinforce(group=16),
    controls={"mean over each row's tokens": lambda: reinforce(group=16).but({"objective.aggregate": SequenceMean()})},
    step_sizes=(0.0625, 0.25, 1.0, 4.0, 16.0),
    criteria=[More("reward", by=0.2)],
    seeds=5,
    trials=2,
    cost="slow",
    note="Short answers are worth 0.3, long right ones 1. A mean over tokens climbs as well, but another objective.",
)
def climbs(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return {"reward": learned(algorithm, lengths(), steps=150, step_size=step_size, seed=seed)["success"]}


@mutation("Each row is a mean over its tokens.", kills=unbiased)
def row_mean(replace: Replace) -> None:
    mean = SequenceMean()
    replace(SequenceSum, "forward", lambda self, terms, experience: mean.forward(terms, experience))
