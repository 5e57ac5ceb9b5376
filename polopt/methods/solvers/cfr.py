"""CFR: regret minimisation in each information set minimises the regret of the whole game."""

import math

from polopt.method import Finding, Paper, method
from polopt.problems import ExtensiveGame, kuhn_poker, leduc_poker
from polopt.solvers import RegretMinimizer, Solver


@method(
    paper=Paper(
        title="Regret Minimization in Games with Incomplete Information",
        authors="Zinkevich, Martin and Johanson, Michael and Bowling, Michael and Piccione, Carmelo",
        year=2007,
        venue="Advances in Neural Information Processing Systems 20",
    ),
    changes="Regret matching in every information set, on counterfactual values; the average strategy is the solution.",
    tier="proven",
)
def cfr(*, alternating: bool = False) -> RegretMinimizer:
    """In iteration t, in each information set I of the player i who decides there, with sigma the present strategy,

        q(I, a) = sum_{h in I} pi_{-i}(h) u_i(h a),    r(I, a) = q(I, a) - sum_b sigma(I, b) q(I, b)
        R += r,    S(I, a) += pi_i(I) sigma(I, a),    sigma(I, a) = max(R(I, a), 0) / sum_b max(R(I, b), 0)

    with pi_i(I) what the player's own choices, and pi_{-i} what the others and chance contribute to being there. Where
    no regret is positive, sigma is uniform. The solution is S, normalised. In a game of two players whose payoffs add
    up to 0 its exploitability falls at least as fast as 1 / sqrt(t).

    alternating: players move in turn within an iteration, which most programs do, and which is faster in practice. The
        paper updates all players at once.

    The iterations visit the whole tree; sampling of chance outcomes is not done. OpenSpiel's CFRSolver alternates.
    """
    return RegretMinimizer(alternating=alternating)


def exploitabilities(solver: Solver, game: ExtensiveGame, iterations: list[int]) -> list[float]:
    """The exploitability of the solution after so many iterations, in increasing order."""
    state, found = solver.begin(game), []
    for t in range(1, max(iterations) + 1):
        state = solver.iterate(game, state)
        if t in iterations:
            found.append(game.exploitability(solver.solution(game, state)))
    return found


@cfr.claim(
    "The average strategy approaches a Nash equilibrium: in Kuhn's poker its value is -1/18.", baseline="uniform"
)
def kuhn_value() -> Finding:
    game, solver = kuhn_poker(), cfr()
    state = solver.begin(game)
    for _ in range(2000):
        state = solver.iterate(game, state)
    found, uniform = game.measure(solver.solution(game, state)), game.measure(game.uniform())
    gap = abs(found["value"] + 1 / 18)
    return Finding(
        measured={
            "exploitability, chips": found["exploitability"],
            "distance of the value from -1/18, chips": gap,
            "of a uniform strategy": abs(uniform["value"] + 1 / 18),
        },
        criterion="exploitability < 0.01 and distance < 0.001 after 2,000 iterations",
        holds=found["exploitability"] < 0.01 and gap < 0.001,
    )


@cfr.claim("Exploitability falls at least as fast as 1 / sqrt(iterations).", baseline="the slope -1/2 of the bound")
def rate() -> Finding:
    game, iterations = leduc_poker(), [50, 800]
    measured = {}
    for name, solver in (("all at once", cfr()), ("alternating", cfr(alternating=True))):
        early, late = exploitabilities(solver, game, iterations)
        measured[f"slope, {name}"] = math.log(late / early) / math.log(iterations[1] / iterations[0])
    return Finding(
        measured=measured,
        criterion="slope of log exploitability against log iterations on Leduc poker, 50 to 800, below -1/2",
        holds=max(measured.values()) < -0.5,
    )
