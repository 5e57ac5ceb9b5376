"""Dr. GRPO: GRPO without its two normalisers."""

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, RelativeAdvantage
from polopt.method import Paper, method
from polopt.objectives import Clip, ReferenceKL, SequenceSum, Surrogate, TokenRatio
from polopt.sampling import Rollouts


@method(
    paper=Paper(
        title="Understanding R1-Zero-Like Training: A Critical Perspective",
        authors="Liu, Zichen and others",
        year=2025,
        arxiv="2503.20783",
    ),
    changes="GRPO without the division by the group's std and by each answer's length.",
    room="credit",
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
