"""SFT: the likelihood of demonstrations."""

from polopt.algorithm import Algorithm
from polopt.credit import Constant
from polopt.method import Paper, method
from polopt.objectives import Score, Surrogate, TokenMean
from polopt.sampling import Demonstrations


@method(
    paper=Paper(
        title="Training language models to follow instructions with human feedback",
        authors="Ouyang, Long and others",
        year=2022,
        arxiv="2203.02155",
    ),
    changes="No rollouts: demonstrations are decisions of advantage 1.",
    tier="proven",
)
def sft() -> Algorithm:
    """L = -mean_it logp_it over the demonstrations' answer tokens, stop token included."""
    return Algorithm(
        sampling=Demonstrations(),
        credit=Constant(value=1.0),
        objective=Surrogate(ratio=None, trust=Score(), aggregate=TokenMean()),
    )
