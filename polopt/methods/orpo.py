"""ORPO: imitation of the preferred answers and the odds of each pair, in one stage and without a reference."""

from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage
from polopt.features import IsCorrect
from polopt.method import Paper, method
from polopt.objectives import (
    Branch,
    BranchedObjective,
    LogOddsReward,
    PairedObjective,
    PolicyGradient,
    SequenceMean,
    Surrogate,
)
from polopt.sampling import PreferencePairs


@method(
    paper=Paper(
        title="ORPO: Monolithic Preference Optimization without Reference Model",
        authors="Hong, Jiwoo and others",
        year=2024,
        arxiv="2403.07691",
    ),
    changes="No reference and no stage before: the likelihood of preferred answers plus each pair's log odds ratio.",
    room="objectives",
    tier="proven",
)
def orpo(*, lam: float = 0.1) -> Algorithm:
    """L = E [ -1/|y_w| log pi(y_w) - lam log sigmoid(log odds(y_w) - log odds(y_l)) ],

        odds(y) = p / (1 - p),    p = pi(y)^(1 / |y|)

    over pairs of a preferred answer y_w and a rejected one y_l. Both terms are by token; |y| counts an answer's tokens
    and its stop token. The paper calls the first term the loss of supervised fine-tuning and starts from a pre-trained
    model; TRL's takes its mean over the tokens of the whole batch, prompts included unless they are masked.

    lam: weight of the odds, in the paper 0.1, 0.2 or 0.25 by model.
    """
    if lam < 0:
        raise ValueError(f"orpo: lam must be >= 0, found {lam}")
    likelihood = Surrogate(ratio=None, trust=PolicyGradient(), aggregate=SequenceMean())
    odds = PairedObjective(implicit=LogOddsReward())
    return Algorithm(
        sampling=PreferencePairs(),
        credit=ConstantAdvantage(value=1.0),
        objective=BranchedObjective(
            routes=[Branch(objective=likelihood, rows=IsCorrect()), Branch(objective=odds, weight=lam)]
        ),
    )
