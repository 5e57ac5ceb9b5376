"""DPO: maximum likelihood of preferences, with the reward implied by the policy."""

from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage
from polopt.method import Paper, method
from polopt.objectives import LogisticLink, LogRatioReward, PairedObjective
from polopt.sampling import PreferencePairs


@method(
    paper=Paper(
        title="Direct Preference Optimization: Your Language Model is Secretly a Reward Model",
        authors="Rafailov, Rafael and others",
        year=2023,
        arxiv="2305.18290",
    ),
    changes="No rollouts and no reward model: the loss compares a preferred answer with a rejected one.",
    room="objectives",
    tier="proven",
)
def dpo(*, beta: float = 0.1, label_smoothing: float = 0.0) -> Algorithm:
    """L = -E log sigmoid(beta [log pi(y_w)/ref(y_w) - log pi(y_l)/ref(y_l)]) over pairs of a preferred answer y_w and a
    rejected one y_l to the same prompt.

    Log-probabilities are sums over an answer's tokens and its stop token. Where preferences follow Bradley-Terry with
    a reward r, the minimiser over enough pairs is ref exp(r / beta) / Z, the optimum of E r - beta KL(pi || ref). The
    reference is the policy at the start of the stage, so a stage of `sft` on the preferred answers comes before.
    label_smoothing: the assumed rate of wrong labels. A pair's rows have no advantage.
    """
    return Algorithm(
        sampling=PreferencePairs(),
        credit=ConstantAdvantage(value=0.0),
        objective=PairedObjective(
            implicit=LogRatioReward(scale=beta), link=LogisticLink(label_smoothing=label_smoothing)
        ),
    )
