"""IPO: a squared loss on the margin of preferences, with a finite target."""

from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage
from polopt.method import Paper, method
from polopt.objectives import LogRatioReward, PairedObjective, SquaredLink
from polopt.sampling import PreferencePairs


@method(
    paper=Paper(
        title="A General Theoretical Paradigm to Understand Learning from Human Preferences",
        authors="Azar, Mohammad Gheshlaghi and others",
        year=2023,
        arxiv="2310.12036",
    ),
    changes="DPO with a squared distance from a finite margin in place of the logistic loss.",
    room="objectives",
    tier="proven",
)
def ipo(*, tau: float = 0.1) -> Algorithm:
    """L = E (log pi(y_w)/ref(y_w) - log pi(y_l)/ref(y_l) - 1 / (2 tau))^2 over pairs of a preferred answer y_w and a
    rejected one y_l to the same prompt.

    Log-probabilities are sums over an answer's tokens, as in the paper; TRL takes their means, which is
    `.but({"objective.implicit.decisions": "mean"})`. tau is the strength of the KL term: unanimous
    preferences move the policy by the margin 1 / (2 tau) and no further, where DPO's loss has no minimum.
    """
    if tau <= 0:
        raise ValueError(f"ipo: tau must be > 0, found {tau}")
    return Algorithm(
        sampling=PreferencePairs(),
        credit=ConstantAdvantage(value=0.0),
        objective=PairedObjective(implicit=LogRatioReward(scale=1.0), link=SquaredLink(target=1 / (2 * tau))),
    )
