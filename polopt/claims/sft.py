"""These programs measure what the paper of SFT claims."""

import polopt.methods.sft as module
from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.claims import fitted
from polopt.lab.effects import More, effect
from polopt.lab.progress import learned, uneven
from polopt.methods.grpo import grpo
from polopt.methods.raft import raft
from polopt.methods.sft import sft
from polopt.objectives import SequenceMean


@claim(
    "Its minimiser plays each answer as often as it was demonstrated.", kind="identity", baseline="the policy before"
)
def frequencies() -> Finding:
    before, after = fitted(sft(), counts=[9, 4, 2, 1, 0, 3, 1])
    return Finding(
        measured={"total variation": after, "before": before},
        criterion="total variation < 1e-3, before > 0.1",
        holds=after < 1e-3 and before > 0.1,
    )


@mutation("The mean is over rows, so that tokens of long answers weigh less.", kills=frequencies)
def mean_over_rows(replace: Replace) -> None:
    replace(module, "TokenMean", SequenceMean)


@effect(
    "Demonstrations teach more than as many rewarded answers of the policy's own.",
    kind="headline",
    method=sft,
    controls={"grpo": lambda: grpo(group=8, kl=0), "raft": lambda: raft(group=8)},
    step_sizes=(32.0, 128.0, 512.0, 2048.0),
    criteria=[More("mean success", by=0.1)],
    seeds=5,
    trials=2,
    budget="answers",
    cost="slow",
    note="16 tasks of very different difficulty. A demonstration costs no sampled answer, and shows what is right "
    "where the policy hardly ever finds it. The bound of a tenth is ours: the paper compares with prompts.",
)
def teaches_more(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    tree, policy = uneven(seed)
    return learned(algorithm, (tree, policy), steps=40, step_size=step_size, seed=seed, demonstrations=tree.outcome)
