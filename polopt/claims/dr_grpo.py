"""These programs measure what the paper of Dr. GRPO claims."""

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.credit import GroupStd, RelativeAdvantage
from polopt.experience import Experience
from polopt.lab import expectation, train
from polopt.lab.effects import Less, effect
from polopt.lab.problems import lengths, wrong_lengths
from polopt.methods import dr_grpo as sentence
from polopt.methods.dr_grpo import dr_grpo
from polopt.objectives import SequenceMean, SequenceSum


@claim(
    "On policy, exactly (1 - 1/G) / C of the true gradient.",
    kind="headline",
    baseline="GRPO's mean over each row's tokens",
)
def unbiased() -> Finding:
    tree, policy = lengths()
    ours = expectation(dr_grpo(group=2), tree, policy, scale=(1 - 1 / 2) / tree.horizon)
    mean = expectation(dr_grpo(group=2).but(**{"objective.aggregate": SequenceMean()}), tree, policy)
    return Finding(
        measured={"relative bias": ours.relative_bias, "cosine": ours.cosine, "GRPO's mean: cosine": mean.cosine},
        criterion="cosine > 0.9999 and relative bias < 1e-10; GRPO's mean: cosine < 0.99",
        holds=ours.cosine > 0.9999 and ours.relative_bias < 1e-10 and mean.cosine < 0.99,
    )


@effect(
    "Wrong answers do not grow longer while they are unlearned.",
    kind="headline",
    method=lambda: (dr_grpo(), 3.2),
    controls={"mean over each answer": lambda: (dr_grpo().but(**{"objective.aggregate": SequenceMean()}), 0.2)},
    seeds=5,
    criteria=[Less("off its start", by=-0.08)],
    cost="slow",
    note="At steps with which both unlearn about as fast; P(long | wrong) is 1/2 at first.",
)
def no_growth(side: tuple[Algorithm, float], *, seed: int) -> dict[str, float]:
    algorithm, rate = side
    tree, policy = wrong_lengths()
    train(algorithm, tree, policy, steps=300, rate=rate, rows=4, seed=seed)
    p = tree.log_probabilities(policy).detach().exp()[0]
    return {"off its start": abs((p[2] / (p[1] + p[2])).item() - 0.5), "wrong": 1 - tree.value(policy).item()}


@mutation("Sums are divided by the batch's longest answer instead of a constant.", kills=unbiased)
def longest_of_the_batch(replace: Replace) -> None:
    def denominator(self: SequenceSum, full_batch: Experience) -> Tensor:
        return torch.tensor(float(full_batch.row_count * int(full_batch.lengths.max())))

    replace(SequenceSum, "denominator", denominator)


@mutation("Advantages are still divided by the group's standard deviation.", kills=unbiased)
def divides_by_std(replace: Replace) -> None:
    replace(
        sentence, "RelativeAdvantage", lambda baseline, scale: RelativeAdvantage(baseline=baseline, scale=GroupStd())
    )
