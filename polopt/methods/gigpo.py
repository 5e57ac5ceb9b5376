"""GiGPO: each turn is also compared with the turns of the group's other rollouts in the same state."""

from polopt.algorithm import Algorithm
from polopt.credit import GroupStd, RewardToGo, StateRelativeAdvantage, WeightedAdvantage, WeightedSum
from polopt.credit.parts import Credit
from polopt.method import Paper, method
from polopt.methods.grpo import grpo


@method(
    paper=Paper(
        title="Group-in-Group Policy Optimization for LLM Agent Training",
        authors="Feng, Lang and Xue, Zhenghai and Liu, Tingcong and An, Bo",
        year=2025,
        arxiv="2505.10978",
    ),
    changes="GRPO whose advantage adds, turn by turn, a comparison with the group's other turns in the same state.",
    room="credit",
    tier="faithful",
)
def gigpo(
    *,
    group: int = 8,
    weight: float = 1.0,
    gamma: float = 0.95,
    normalise: bool = True,
    clip: float = 0.2,
    kl: float = 0.01,
) -> Algorithm:
    """For turn h of row i, with G_ih = sum_{u >= h} gamma^(u - h) r_iu over turns and C the turns of the group in the
    same state,

        A_ih = (R_i - mean_g R) / (std_g R + eps) + weight (G_ih - mean_C G) / (std_C G + eps)

    on every decision of the turn; the second term is 0 where no other turn was in the state. The loss is GRPO's.

    weight: of the second term; 0 is GRPO. normalise: whether both deviations divide; they do not in the paper's
    variant for tasks of which many are all right or all wrong.

    A state is what was read before the turn, `extras["turn_state"]`, compared token by token: a clock in the text hides
    that it recurs. The authors' code can match texts that are similar by 95 %, and by default takes the mean of R over
    turns, so that long rollouts count more; the mean here is over rollouts, as the paper writes it. A rollout that
    visits a state twice is compared with itself, too. Their penalty of 0.1 on turns that cannot be read is a term of
    the reward.
    """
    base = grpo(group=group, clip=clip, kl=kl)
    episode: Credit = base.credit.but(scale=GroupStd() if normalise else None)
    step = StateRelativeAdvantage(returns=RewardToGo(gamma=gamma, unit="turn"), normalise=normalise)
    shares = [WeightedAdvantage(credit=episode), WeightedAdvantage(credit=step, weight=weight)]
    return base.but(credit=WeightedSum(shares=shares))
