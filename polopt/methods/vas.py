"""VAS, the sampling of MMR1: half of the tasks in turn, half in proportion to the variance of their outcomes."""

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.sampling import VariancePromotingSampler
from polopt.sampling.promoting import Measure


@method(
    paper=Paper(
        title="MMR1: Enhancing Multimodal Reasoning with Variance-Aware Sampling and Open Resources",
        authors="Leng, Sicong and others",
        year=2025,
        arxiv="2509.21268",
    ),
    changes="GRPO with half of the tasks in turn and half in proportion to p (1 - p), measured anew every few batches.",
    room="sampling",
    tier="faithful",
)
def vas(
    *,
    group: int = 8,
    share: float = 0.5,
    every: int = 4,
    rollouts: int = 8,
    variance: float = 1.0,
    diversity: float = 0.0,
    measure: Measure = "distinct",
    momentum: float = 0.0,
    clip: float = 0.2,
    kl: float = 0.01,
) -> Algorithm:
    """Task sampling by scores from `rollouts` rollouts of every task, before the first batch and after every
    `every`-th:

        score_i = variance p_i (1 - p_i) + diversity D_i,    weight_i = (score_i - min) / (max - min + 1e-8)

    Of a batch, floor(share n) tasks are drawn with replacement in proportion to their weights; the others come in turn.

    Defaults are those of the authors' program, which was read for this, but for the temperature: it samples at 0.6, we
    at 1 (`.but(**{"sampling.support": Support(temperature=0.6)})`). There the diversity of answers is off, and its
    comment on momentum contradicts the computation (here: the share of the old weight that stays). The text
    combines both terms; with which coefficients is not known to us. The program adds self-BLEU as it is, which rewards
    answers that are alike, and edit distances without a scale; here D is 1 - self-BLEU, and a distance over the longest
    answer's length. It goes through one order of the tasks again and again; ours is shuffled each time. If no task
    varies, all weights are 0 and its draw fails; here all tasks then come in turn.

    Measuring costs rollouts of every task, which count as sampled: with 64 tasks and 16 a batch they double the cost.
    """
    choice = VariancePromotingSampler(
        share=share,
        every=every,
        rollouts=rollouts,
        variance=variance,
        diversity=diversity,
        measure=measure,
        momentum=momentum,
    )
    return grpo(group=group, clip=clip, kl=kl).but(**{"sampling.choice": choice})
