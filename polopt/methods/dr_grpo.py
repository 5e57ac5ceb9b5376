"""Dr. GRPO: GRPO without its two normalisers."""

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, RelativeAdvantage
from polopt.lab import expectation, train
from polopt.lab.problems import lengths, wrong_lengths
from polopt.method import Finding, Paper, method
from polopt.objectives import Clip, ReferenceKL, SequenceMean, SequenceSum, Surrogate, TokenRatio
from polopt.sampling import Rollouts


@method(
    paper=Paper(
        title="Understanding R1-Zero-Like Training: A Critical Perspective",
        authors="Liu, Zichen and others",
        year=2025,
        arxiv="2503.20783",
    ),
    changes="GRPO without the division by the group's std and by each answer's length.",
    room="objectives",
    tier="proven",
)
def dr_grpo(*, group: int = 8, clip: float = 0.2, kl: float = 0.0, length: int | None = None) -> Algorithm:
    """A_i = R_i - mean_g R and L = (1 / (B C)) sum_it max(-A_i r_it, -A_i clip(r_it, 1 - clip, 1 + clip)).

    C is a constant: `length`, or the batch's horizon (the longest answer allowed). On policy the expected
    gradient is (1 - 1/G) / C times the exact one: retune the learning rate. TRL and verl agree; the batch's
    longest answer in place of C would bring the length bias back.
    """
    return Algorithm(
        sampling=Rollouts(group=group),
        credit=RelativeAdvantage(baseline=GroupMean(), scale=None),
        objective=Surrogate(
            ratio=TokenRatio(),
            trust=Clip(low=clip, high=clip),
            aggregate=SequenceSum(length=length),
            regularise=[ReferenceKL(coefficient=kl)] if kl else [],
        ),
    )


@dr_grpo.claim("On policy, exactly (1 - 1/G) / C of the true gradient.", baseline="GRPO's mean over each row's tokens")
def unbiased() -> Finding:
    tree, policy = lengths()
    ours = expectation(dr_grpo(group=2), tree, policy, scale=(1 - 1 / 2) / tree.horizon)
    mean = expectation(dr_grpo(group=2).but(**{"objective.aggregate": SequenceMean()}), tree, policy)
    return Finding(
        measured={"relative bias": ours.relative_bias, "cosine": ours.cosine, "GRPO's mean: cosine": mean.cosine},
        criterion="cosine > 0.9999 and relative bias < 1e-10; GRPO's mean: cosine < 0.99",
        holds=ours.cosine > 0.9999 and ours.relative_bias < 1e-10 and mean.cosine < 0.99,
    )


@dr_grpo.claim("Wrong answers do not grow longer while they are unlearned.", baseline="GRPO's mean, equal step")
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
