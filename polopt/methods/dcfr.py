"""DCFR: discounted CFR, which forgets early regrets and early strategies."""

from polopt.method import Paper, method
from polopt.solvers import DiscountedRegretSum, PowerWeight, RegretMinimizer


@method(
    paper=Paper(
        title="Solving Imperfect-Information Games via Discounted Regret Minimization",
        authors="Brown, Noam and Sandholm, Tuomas",
        year=2019,
        arxiv="1809.04040",
    ),
    changes="CFR whose regrets and strategies of early iterations are discounted, positive regrets less than others.",
    room="solvers",
    tier="proven",
)
def dcfr(*, alpha: float = 1.5, beta: float = 0.0, gamma: float = 2.0) -> RegretMinimizer:
    """CFR with alternating players and, in iteration t = 1, 2, ...,

        R = (R + r) t^alpha / (t^alpha + 1) where R + r > 0, otherwise (R + r) t^beta / (t^beta + 1)
        S(I, a) += t^gamma pi_i(I) sigma(I, a)

    alpha, beta: the persistence of positive and of other regrets; 1, 1 and gamma = 1 are linear CFR up to a factor that
        no strategy depends on.
    gamma: the weight of later strategies in the average. The paper multiplies the sum by (t / (t + 1))^gamma after each
        iteration, which is the same average.

    The defaults are the paper's recommendation. In a game of two players whose payoffs add up to 0 the bound of
    CFR holds up to a constant. The discount comes after this iteration's regrets are added, as in the paper;
    discounting before gives the same strategies, with t - 1 in place of t.
    """
    return RegretMinimizer(
        accumulate=DiscountedRegretSum(alpha=alpha, beta=beta), average=PowerWeight(power=gamma), alternating=True
    )
