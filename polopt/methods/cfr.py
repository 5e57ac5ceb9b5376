"""CFR: counterfactual regret minimisation, whose regrets per information set bound the regret of the whole game."""

from polopt.method import Paper, method
from polopt.solvers import RegretMinimizer


@method(
    paper=Paper(
        title="Regret Minimization in Games with Incomplete Information",
        authors="Zinkevich, Martin and Johanson, Michael and Bowling, Michael and Piccione, Carmelo",
        year=2007,
        venue="Advances in Neural Information Processing Systems 20",
    ),
    changes="Regret matching in every information set, on counterfactual values; the average strategy is the solution.",
    room="solvers",
    tier="proven",
)
def cfr(*, alternating: bool = False) -> RegretMinimizer:
    """In iteration t, in each information set I of the player i that decides there, with sigma the present strategy,

        q(I, a) = sum_{h in I} pi_{-i}(h) u_i(h a),    r(I, a) = q(I, a) - sum_b sigma(I, b) q(I, b)
        R += r,    S(I, a) += pi_i(I) sigma(I, a),    sigma(I, a) = max(R(I, a), 0) / sum_b max(R(I, b), 0)

    with pi_i(I) the probability of the player's own choices leading there, and pi_{-i} that of the others' and of
    chance. Where
    no regret is positive, sigma is uniform. The solution is S, normalised. In a game of two players whose payoffs add
    up to 0 its exploitability falls at least as fast as 1 / sqrt(t).

    alternating: players move in turn within an iteration, which most programs do, and which is faster in practice. The
        paper updates all players at once.

    The iterations visit the whole tree, without sampling of chance outcomes. OpenSpiel's CFRSolver alternates.
    """
    return RegretMinimizer(alternating=alternating)
