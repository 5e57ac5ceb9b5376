"""EAPO: the turns of a rollout are rows of their own, and those of a long one are worth less, the earlier the less."""

from polopt.algorithm import Algorithm
from polopt.credit import RewardToGo, StateRelativeAdvantage
from polopt.method import Paper, method
from polopt.methods.gspo import gspo
from polopt.objectives import SequenceRatio, TurnMean


@method(
    paper=Paper(
        title="IterResearch: Rethinking Long-Horizon Agents via Markovian State Reconstruction",
        authors="Chen, Guoxin and Qiao, Zile and Chen, Xuanzhong and Yu, Donglei and others",
        year=2025,
        arxiv="2511.07327",
    ),
    changes="GSPO of turns: the outcome is discounted to each of them, and compared with that of the group's turns.",
    room="credit",
    tier="reading",
)
def iterresearch_eapo(*, group: int = 8, gamma: float = 0.995, low: float = 3e-4, high: float = 4e-4) -> Algorithm:
    """For turn h of the T of rollout i, with the mean and the deviation over all turns of the group's rollouts,

        A_ih = (gamma^(T - h) R_i - mean) / (std + eps),    s_ih = exp( (1/|y_ih|) sum_t log r_iht )

    and GSPO's clipped loss of the ratios s_ih, of which each turn of the batch counts the same. Of two right rollouts
    the shorter has the larger mean advantage.

    gamma: 1 leaves the outcome; the paper's value could not be confirmed.

    A long rollout has more turns among those that the mean and the deviation are of, also if it is wrong. This is the
    paper's update, EAPO, alone: its agent's context is rebuilt in each turn, as a report and the last result, and the
    rows of this library hold all that was read before. What the paper drops at random to make the number of turns a
    multiple of the devices is not needed here.
    """
    credit = StateRelativeAdvantage(returns=RewardToGo(gamma=gamma, unit="turn"), depth=0, least=0)
    changes = {"objective.ratio": SequenceRatio(unit="turn"), "objective.aggregate": TurnMean(turns="all")}
    return gspo(group=group, low=low, high=high).but({"credit": credit, **changes})
