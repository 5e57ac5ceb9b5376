"""OTR: each demonstrated token as a one-step episode, with tokens sampled from the policy."""

from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage
from polopt.method import Paper, method
from polopt.objectives import OneToken, Surrogate, TokenMean
from polopt.sampling import Demonstrations


@method(
    paper=Paper(
        title="One-Token Rollout: Guiding Supervised Fine-Tuning of LLMs with Policy Gradient",
        authors="Ming, Rui and others",
        year=2025,
        arxiv="2509.26313",
    ),
    changes="SFT by policy gradient: tokens drawn from the policy at each position, paid if the demonstration agrees.",
    room="objectives",
    tier="reading",
)
def otr(*, draws: int | None = 256, temperature: float = 1.3, miss: float = -0.1, floor: float = -20.0) -> Algorithm:
    """At each demonstrated token x, a_1 .. a_K drawn from softmax(logits / temperature) without gradient, and

        L = -(1 / sum_i |y_i|) sum_it (1 / K) sum_j R(a_j) logp_it(a_j),    R = 1 if a_j = x, else miss

    draws None takes the expectation over the draws, which costs less and has no noise: K only adds some. With miss 0
    and temperature 1 that is the likelihood weighted with p (dynamic fine-tuning, CHORD's importance weight).

    Temperature, draws and miss are our best reading of the paper; no reference code was found. logp is taken at
    temperature 1, and the drawing temperature is not corrected for. floor bounds the negative reward's effect: a missed
    token below e^-20 is lowered no further. Where x is never drawn only the misses have a gradient.
    """
    return Algorithm(
        sampling=Demonstrations(),
        credit=ConstantAdvantage(value=1.0),
        objective=Surrogate(
            ratio=None,
            trust=OneToken(draws=draws, temperature=temperature, miss=miss, floor=floor),
            aggregate=TokenMean(),
        ),
    )
