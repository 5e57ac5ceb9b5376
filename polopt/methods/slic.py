"""SLiC: a hinge on the log-probabilities of preferred and rejected answers, and imitation of the preferred ones."""

from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage
from polopt.features import IsCorrect
from polopt.method import Paper, method
from polopt.objectives import (
    Branch,
    BranchedObjective,
    HingeLink,
    LogProbReward,
    PairedObjective,
    PolicyGradient,
    SequenceSum,
    Surrogate,
)
from polopt.sampling import PreferencePairs


@method(
    paper=Paper(
        title="SLiC-HF: Sequence Likelihood Calibration with Human Feedback",
        authors="Zhao, Yao and Joshi, Rishabh and Liu, Tianqi and Khalman, Misha and Saleh, Mohammad and Liu, Peter J.",
        year=2023,
        arxiv="2305.10425",
    ),
    changes="A hinge on the plain log-probabilities of a pair, with the likelihood of the preferred answer beside it.",
    room="objectives",
    tier="proven",
)
def slic(*, delta: float = 1.0, lam: float = 0.1) -> Algorithm:
    """L = E max(0, delta - log pi(y_w) + log pi(y_l)) - lam E log pi(y_w)

    over pairs of a preferred answer y_w and a rejected one y_l; log-probabilities are sums over an answer's tokens.

    delta: the margin beyond which a pair moves nothing.
    lam: weight of the likelihood. Its target is here the preferred answer, where the paper also takes the answer of
    the data that the policy was first trained on; the paper's weights are not given, and 0.1 is ours.

    `loss_type="hinge"` of TRL is another loss: it has DPO's log-ratios to a reference in place of log-probabilities,
    and no likelihood; that is `dpo().but({"objective.link": HingeLink()})`.
    """
    if lam < 0:
        raise ValueError(f"slic: lam must be >= 0, found {lam}")
    pairs = PairedObjective(implicit=LogProbReward(scale=1.0, decisions="sum"), link=HingeLink(threshold=delta))
    likelihood = Surrogate(ratio=None, trust=PolicyGradient(), aggregate=SequenceSum(length=1))
    return Algorithm(
        sampling=PreferencePairs(),
        credit=ConstantAdvantage(value=1.0),
        objective=BranchedObjective(
            routes=[Branch(objective=pairs), Branch(objective=likelihood, rows=IsCorrect(), weight=lam)]
        ),
    )
