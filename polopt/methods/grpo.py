"""GRPO: PPO with the group of rollouts as the baseline in place of a critic."""

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.method import Paper, method
from polopt.objectives import Clip, ReferenceKL, SequenceMean, Surrogate, TokenRatio
from polopt.sampling import Rollouts


@method(
    paper=Paper(
        title="DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models",
        authors="Shao, Zhihong and others",
        year=2024,
        arxiv="2402.03300",
    ),
    changes="PPO without a critic: the advantage is the outcome's z-score within the group of one prompt.",
    room="credit",
    tier="faithful",
)
def grpo(*, group: int = 64, clip: float = 0.2, kl: float = 0.04) -> Algorithm:
    """A_i = (R_i - mean_g R) / (std_g R + eps), on every token of answer i, and

        L = mean_i (1/|y_i|) sum_t [ max(-A_i r_it, -A_i clip(r_it, 1 - clip, 1 + clip)) + kl k3_it ]

    with r the token ratio to the sampler and k3 = exp(ref - logp) - (ref - logp) - 1.

    An all-equal group and a group of one have advantage 0 (verl gives a group of one A = R). std divides by
    n - 1, as in TRL and verl; the paper leaves it open. kl = 0 drops the reference policy. TRL calls this mean over
    answers loss_type="grpo"; "bnpo" and "dapo" there are means over tokens.
    """
    return Algorithm(
        sampling=Rollouts(group=group),
        credit=RelativeAdvantage(baseline=GroupMean(), scale=GroupStd()),
        objective=Surrogate(
            ratio=TokenRatio(),
            trust=Clip(low=clip, high=clip),
            aggregate=SequenceMean(),
            regularise=[ReferenceKL(coefficient=kl)] if kl else [],
        ),
    )
