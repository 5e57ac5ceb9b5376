"""These programs measure what the paper of Dr. GRPO claims."""

import torch
from torch import Tensor

from polopt.claim import Finding, Replace, claim, mutation
from polopt.credit import GroupStd, RelativeAdvantage
from polopt.experience import Experience
from polopt.lab import expectation, train
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


@claim(
    "Wrong answers do not grow longer while they are unlearned.", kind="headline", baseline="GRPO's mean, equal step"
)
def no_growth() -> Finding:
    share = {}
    for name, aggregate, rate in (("sum", SequenceSum(), 3.2), ("mean", SequenceMean(), 0.2)):
        tree, policy = wrong_lengths()
        train(dr_grpo().but(**{"objective.aggregate": aggregate}), tree, policy, steps=300, rate=rate, rows=4)
        p = tree.log_probabilities(policy).detach().exp()[0]
        share[name] = (p[2] / (p[1] + p[2])).item()
    return Finding(
        measured={f"P(long | wrong), {n}": s for n, s in share.items()},
        criterion="from 0.5: the sum within 0.02, the mean above 0.6",
        holds=abs(share["sum"] - 0.5) < 0.02 and share["mean"] > 0.6,
    )


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
