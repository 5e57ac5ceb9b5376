"""RFT: supervised fine-tuning on the policy's distinct right answers."""

from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage
from polopt.method import Paper, method
from polopt.objectives import PolicyGradient, Surrogate, TokenMean
from polopt.sampling import Rollouts, TopK, UniqueAnswers


@method(
    paper=Paper(
        title="Scaling Relationship on Learning Mathematical Reasoning with Large Language Models",
        authors="Yuan, Zheng and others",
        year=2023,
        arxiv="2308.01825",
    ),
    changes="SFT on the policy's own right answers, each different one once.",
    room="sampling",
    tier="proven",
)
def rft(*, group: int = 100, threshold: float = 1.0) -> Algorithm:
    """L = -(1 / sum_i |y_i|) sum_it logp_it over the distinct answers of each group that reach `threshold`.

    Distinct is by `extras["answer"]`; the paper compares the list of equations in an answer. The paper collects
    once from a tuned model, adds the original demonstrations and tunes the base model again; here every batch
    is one collection, which `.but` and a fixed data set turn into the paper's schedule.
    """
    return Algorithm(
        sampling=Rollouts(group=group, select=[TopK(count=group, threshold=threshold), UniqueAnswers()]),
        credit=ConstantAdvantage(value=1.0),
        objective=Surrogate(ratio=None, trust=PolicyGradient(), aggregate=TokenMean()),
    )
