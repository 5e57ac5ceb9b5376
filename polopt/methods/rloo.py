"""RLOO: REINFORCE with the mean return of the group's other rollouts as the baseline."""

from polopt.algorithm import Algorithm
from polopt.credit import LeaveOneOut, RelativeAdvantage
from polopt.method import Paper, method
from polopt.objectives import PolicyGradient, SequenceSum, Surrogate
from polopt.rewards import KLPenalty, OutcomeReward, Reward, SumOfRewards
from polopt.sampling import Rollouts


@method(
    paper=Paper(
        title="Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human Feedback in LLMs",
        authors="Ahmadian, Arash and others",
        year=2024,
        arxiv="2402.14740",
    ),
    changes="REINFORCE on whole answers whose baseline is the mean return of the group's other answers.",
    room="credit",
    tier="proven",
)
def rloo(*, group: int = 4, kl: float = 0.05) -> Algorithm:
    """A_i = R_i - mean_{j != i} R_j and L = -(1/B) sum_i A_i sum_t logp_it: one action per answer.

    kl weighs the k1 estimate of the distance to the reference inside the reward, on each token, as
    R_i - kl sum_t (logp_it - ref_it); 0 drops it. The baseline does not depend on row i, so the gradient
    is unbiased. A group of one has baseline 0. TRL's current trainer clips a ratio of whole answers on top;
    at ratio 1 its gradient is this one.
    """
    reward: Reward = SumOfRewards(terms=[OutcomeReward(), KLPenalty(coefficient=kl)]) if kl else OutcomeReward()
    return Algorithm(
        sampling=Rollouts(group=group),
        reward=reward,
        credit=RelativeAdvantage(baseline=LeaveOneOut(), scale=None),
        objective=Surrogate(ratio=None, trust=PolicyGradient(), aggregate=SequenceSum(length=1)),
    )
