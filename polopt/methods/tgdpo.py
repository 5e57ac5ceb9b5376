"""TGDPO: DPO whose tokens are weighed by the reward that a trained policy implies for them."""

from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage
from polopt.method import Paper, method
from polopt.objectives import GuidedLogRatioReward, PairedObjective
from polopt.sampling import PreferencePairs


@method(
    paper=Paper(
        title="TGDPO: Harnessing Token-Level Reward Guidance for Enhancing Direct Preference Optimization",
        authors="Zhu, Mingkang and others",
        year=2025,
        arxiv="2506.14574",
    ),
    changes="DPO with a strength for each token, from the reward that an earlier DPO policy implies for it.",
    room="objectives",
    tier="proven",
)
def tgdpo(*, beta: float = 0.1, alpha: float = 0.5) -> Algorithm:
    """L = -E log sigmoid(sum_t beta (1 + alpha g_t) log pi(w_t)/ref(w_t) - sum_t beta (1 - alpha g_t) log
    pi(l_t)/ref(l_t)), g_t = beta log guide(y_t)/ref(y_t),

    over pairs of a preferred answer w and a rejected one l: tokens that the guide likes move further in the preferred
    answer, those that it dislikes further in the rejected one. The guide is a frozen policy that the stage names,
    trained with DPO or SimPO from the same reference, as `policies: {guide: {stage: dpo}}` after a stage of that name.

    beta: as DPO's, for the guide's reward too. alpha: weight of the guide; 0 is DPO. The paper's code lets a token's
    strength turn negative; here it stops at 0.
    """
    return Algorithm(
        sampling=PreferencePairs(),
        credit=ConstantAdvantage(value=0.0),
        objective=PairedObjective(implicit=GuidedLogRatioReward(scale=beta, alpha=alpha)),
    )
