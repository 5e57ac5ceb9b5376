"""COPO: GRPO blended with an advantage between prompts, which replaces it where a group's answers agree."""

from polopt.algorithm import Algorithm
from polopt.credit import AcrossGroups, MultiAdvantage, RelativeAdvantage, WeightedAdvantage
from polopt.features.rows import AnswerEntropy, Logistic
from polopt.method import Paper, method
from polopt.objectives import Clip, PerAdvantageSurrogate, SequenceMean, Surrogate, TokenRatio
from polopt.sampling import Rollouts


@method(
    paper=Paper(
        title="COPO: Consistency-Aware Policy Optimization",
        authors="Han, Jinghang and others",
        year=2025,
        arxiv="2508.04138",
    ),
    changes="GRPO blended, by the entropy of each group's answers, with an advantage of the prompt over other prompts.",
    room="credit",
    tier="faithful",
)
def copo(
    *, group: int = 6, slope: float = 20.0, centre: float = 1.5, clip: float = 0.2, dual: float | None = 3.0
) -> Algorithm:
    """Each token's loss is w L(A_local) + (1 - w) L(A_global), with L PPO's clipped term and

        A_local = (R_i - mean_g R) / (std_g R + eps)        A_global = (m_g - mean m) / (std m + eps)
        w = sigmoid(slope (H - centre))                     H = -sum_c f_c log2 f_c

    m_g the group's mean return and f_c the share of its answers equal to c. Each advantage is clipped by itself: one
    blended advantage would be another loss wherever the two have opposite signs. Mean over each answer's tokens.

    H is in bits, as in the authors' code, and at most log2(group): a centre near it leaves the global term alone. 20
    and 1.5 are the paper's. The released script has 5 and 1, and gives rows of return 0 to the global term whatever H;
    another mode of it weighs m_g by how much the answers agree. Neither is offered here. Answers are alike if their
    texts are; a group of one has A_local = 0 (there: R).
    """
    entropy = AnswerEntropy(base=2)
    return Algorithm(
        sampling=Rollouts(group=group),
        credit=MultiAdvantage(
            shares=[
                WeightedAdvantage(credit=RelativeAdvantage(), weight=Logistic(of=entropy, slope=slope, centre=centre)),
                WeightedAdvantage(
                    credit=AcrossGroups(), weight=Logistic(of=entropy.but(), slope=-slope, centre=centre)
                ),
            ]
        ),
        objective=Surrogate(
            ratio=TokenRatio(),
            trust=PerAdvantageSurrogate(trust=Clip(low=clip, high=clip, dual=dual)),
            aggregate=SequenceMean(),
        ),
    )
