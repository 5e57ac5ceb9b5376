"""PF-PPO: PPO on the rollouts whose reward is most reliable."""

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.ppo import ppo
from polopt.sampling import RankedRows


@method(
    paper=Paper(
        title="Policy Filtration for RLHF to Mitigate Noise in Reward Models",
        authors="Zhang, Chuheng and Shen, Wei and others",
        year=2024,
        arxiv="2409.06957",
    ),
    changes="PPO on the best and the worst answer of each group, where the reward model errs least.",
    room="sampling",
    tier="faithful",
)
def pf_ppo(*, group: int = 8, best: int = 1, worst: int = 1, others: int = 0, kl: float = 0.05) -> Algorithm:
    """PPO on a subset of the N = `group` answers to a prompt, ordered by reward: the `best` highest, the `worst` lowest
    and `others` of the rest at random: BW is 1, 1, 0 (the default), BR 1, 0, 1, BoN 1, 0, 0.

    Measure which to take: `metrics.most_reliable` computes R^2 between reward and truth on the rows that each keeps of
    a few labelled answers, all answers among them. Advantages are computed and whitened before anything is left out;
    the authors' code (BR) whitens what is left. Ties at the top go to the earlier row. verl draws the whole batch again
    instead: select=[ResampledRows()] with its weights "power", "extremes" and "best".
    """
    return ppo(group=group, kl=kl).but(select=[RankedRows(best=best, worst=worst, others=others)])
