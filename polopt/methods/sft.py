"""SFT: maximum likelihood on demonstrations."""

from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage
from polopt.method import Paper, method
from polopt.objectives import PolicyGradient, Surrogate, TokenMean
from polopt.sampling import Demonstrations


@method(
    paper=Paper(
        title="Training language models to follow instructions with human feedback",
        authors="Ouyang, Long and others",
        year=2022,
        arxiv="2203.02155",
    ),
    changes="No reward: every demonstrated decision has advantage 1.",
    room="sampling",
    tier="proven",
)
def sft() -> Algorithm:
    """L = -(1 / sum_i |y_i|) sum_it logp_it over the demonstrated tokens; prompts are masked out.

    SFT is REINFORCE with reward 1 and importance weight 1/pi: rare tokens have the largest gradients. The mean is over
    the tokens of the whole optimiser batch, not of each micro-batch. Long before this paper the practice had no
    other name than maximum likelihood.
    """
    return Algorithm(
        sampling=Demonstrations(),
        credit=ConstantAdvantage(value=1.0),
        objective=Surrogate(ratio=None, trust=PolicyGradient(), aggregate=TokenMean()),
    )
