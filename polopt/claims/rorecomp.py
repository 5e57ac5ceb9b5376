"""These programs measure what the paper of RoRecomp claims."""

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.recomposed import learned_lengths, pull_on_length
from polopt.lab.effects import Less, More, effect
from polopt.methods import rorecomp as sentence
from polopt.methods.grpo import grpo
from polopt.methods.rorecomp import rorecomp, shortest_right_longest_wrong


@claim(
    "Once answers are mostly right, a step makes them shorter, though longer ones are surer.",
    kind="part",
    baseline="GRPO on all rows, the same rollouts",
)
def one_step() -> Finding:
    slopes = {}
    for name, algorithm in (("all", grpo(group=16, kl=0)), ("recomposed", rorecomp(compensate=0.0))):
        slopes[name] = pull_on_length(algorithm, shortest=8)
    return Finding(
        measured={f"d length / d step, {name}": x for name, x in slopes.items()},
        criterion="> 0 on all rows, < 0 on the recomposed (256 groups of 16; lengths 8 to 20 alike)",
        holds=slopes["all"] > 0 > slopes["recomposed"],
    )


def _learned(algorithm: Algorithm, seed: int, step_size: float) -> dict[str, float]:
    return learned_lengths(algorithm, rollouts=300, seed=seed, step_size=step_size)


@effect(
    "Answers are a fifth shorter at 2.5 points of accuracy.",
    kind="headline",
    method=rorecomp,
    controls={"grpo on all rows": lambda: grpo(group=16, kl=0)},
    step_sizes=(3.2, 6.4, 12.8, 25.6, 51.2),
    criteria=[Less("length", times=0.8), More("accuracy", by=-0.025)],
    best=More("accuracy", by=0.0),
    seeds=25,
    trials=1,
    budget="answers",
    cost="slow",
    note="Of 20 lengths alike at first, the chance to be right is 0.95 sigmoid(length - 6): all beyond 10 are as good. "
    "8 prompts, 300 batches of 16 answers to each; compensation falls to 0 in the first 200.",
)
def shorter(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return _learned(algorithm, seed, step_size)


@effect(
    "Compensation after every batch brings accuracy and entropy back.",
    kind="part",
    method=lambda: rorecomp(compensate=1.0),
    controls={"without compensation": lambda: rorecomp(compensate=0.0)},
    step_sizes=(1.6, 3.2, 6.4, 12.8, 25.6),
    criteria=[More("accuracy", by=0.0), More("entropy", by=0.0)],
    seeds=5,
    trials=1,
    budget="answers",
    cost="slow",
    note="On fresh seeds accuracy came back as well, by 0.045, entropy did not: it goes by the step sizes "
    "that are chosen.",
)
def compensated(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return _learned(algorithm, seed, step_size)


@mutation("The longest right answers are chosen, and the shortest wrong ones.", kills=one_step)
def longest_right(replace: Replace) -> None:
    right = shortest_right_longest_wrong
    replace(
        sentence,
        "shortest_right_longest_wrong",
        lambda length, is_right, group, share: right(-length, is_right, group, share),
    )
