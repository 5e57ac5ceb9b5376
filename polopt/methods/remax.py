"""ReMax: the greedy answer is the baseline."""

from polopt.algorithm import Algorithm
from polopt.credit import GreedyReturn, RelativeAdvantage
from polopt.method import Paper, method
from polopt.objectives import PolicyGradient, SequenceSum, Surrogate
from polopt.rewards import KLPenalty, OutcomeReward, Reward, SumOfRewards
from polopt.sampling import Rollouts


@method(
    paper=Paper(
        title="ReMax: A Simple, Effective, and Efficient Reinforcement Learning Method for Aligning LLMs",
        authors="Li, Ziniu and others",
        year=2023,
        arxiv="2310.10505",
    ),
    changes="REINFORCE whose baseline is the reward of the greedy answer to the same prompt; no critic.",
    room="credit",
    tier="proven",
)
def remax(*, kl: float = 0.05) -> Algorithm:
    """A_i = R_i - R(greedy answer) and L = -(1/B) sum_i A_i sum_t logp_it.

    `extras["greedy_reward"]` holds the greedy answer's reward. It does not depend on the sampled answer,
    so the gradient is unbiased; the variance falls as long as the greedy answer is worth about as much as the
    average one. kl weighs the k1 penalty in the reward of the sampled answer (0 drops it); the greedy answer's
    is left out. The penalty counts for the whole answer, as in verl today; older verl credited each token with
    the penalty still to come.
    """
    reward: Reward = SumOfRewards(terms=[OutcomeReward(), KLPenalty(coefficient=kl)]) if kl else OutcomeReward()
    return Algorithm(
        sampling=Rollouts(group=1),
        reward=reward,
        credit=RelativeAdvantage(baseline=GreedyReturn(), scale=None),
        objective=Surrogate(ratio=None, trust=PolicyGradient(), aggregate=SequenceSum(length=1)),
    )
