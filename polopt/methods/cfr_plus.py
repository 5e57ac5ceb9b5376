"""CFR+: CFR with nonnegative regrets, alternating players, and a linearly weighted average."""

from polopt.method import Paper, method
from polopt.solvers import LinearWeight, PositiveRegretSum, RegretMinimizer


@method(
    paper=Paper(
        title="Solving Large Imperfect Information Games Using CFR+",
        authors="Tammelin, Oskari",
        year=2014,
        arxiv="1407.5042",
    ),
    changes="CFR with regrets clipped at 0 after each iteration, alternating players and a linearly weighted average.",
    room="solvers",
    tier="proven",
)
def cfr_plus(*, delay: int = 0) -> RegretMinimizer:
    """CFR with

        R = max(R + r, 0),    S(I, a) += max(t - delay, 0) pi_i(I) sigma(I, a)

    in iteration t = 1, 2, ..., in which the players move in turn, each against the others' newest strategies. An action
    whose regret was negative for long is taken again as soon as it is better than the others.

    delay: iterations that do not count in the average. The paper leaves it open; OpenSpiel's CFRPlusSolver has none.

    The paper also solves games too large for memory, with vectors of hands and compressed regrets, which is not here.
    """
    return RegretMinimizer(accumulate=PositiveRegretSum(), average=LinearWeight(delay=delay), alternating=True)
