"""CFR+: CFR with regrets that are never negative, alternating players, and more weight on later strategies."""

from polopt.method import Finding, Paper, method
from polopt.methods.solvers.cfr import cfr, exploitabilities
from polopt.problems import kuhn_poker, leduc_poker
from polopt.solvers import LinearWeight, PositiveRegretSum, RegretMinimizer


@method(
    paper=Paper(
        title="Solving Large Imperfect Information Games Using CFR+",
        authors="Tammelin, Oskari",
        year=2014,
        arxiv="1407.5042",
    ),
    changes="CFR with regrets clipped at 0 after each iteration, alternating players and a linearly weighted average.",
    tier="proven",
)
def cfr_plus(*, delay: int = 0) -> RegretMinimizer:
    """As CFR, with

        R = max(R + r, 0),    S(I, a) += max(t - delay, 0) pi_i(I) sigma(I, a)

    in iteration t = 1, 2, ..., in which the players move in turn, each against the others' newest strategies. An action
    whose regret was negative for long is taken again as soon as it is better than the others.

    delay: iterations that do not count in the average. The paper leaves it open; OpenSpiel's CFRPlusSolver has none.

    The paper also solves games too large for memory, with vectors of hands and compressed regrets, which is not here.
    """
    return RegretMinimizer(accumulate=PositiveRegretSum(), average=LinearWeight(delay=delay), alternating=True)


@cfr_plus.claim(
    "At an equal number of iterations the solution is less exploitable than CFR's.",
    baseline="CFR, all players at once, and alternating",
)
def faster() -> Finding:
    game, iterations = leduc_poker(), [100, 500]
    ours = exploitabilities(cfr_plus(), game, iterations)
    measured = {f"CFR+ after {t}, chips": x for t, x in zip(iterations, ours, strict=True)}
    least = float("inf")
    for name, solver in (("CFR", cfr()), ("alternating CFR", cfr(alternating=True))):
        theirs = exploitabilities(solver, game, iterations)
        measured |= {f"{name} after {t}, chips": x for t, x in zip(iterations, theirs, strict=True)}
        least = min(least, *(b / a for a, b in zip(ours, theirs, strict=True)))
    return Finding(
        measured={**measured, "least factor": least},
        criterion="on Leduc poker CFR's exploitability is more than 3 times as large after 100 and 500 iterations",
        holds=least > 3,
    )


@cfr_plus.claim("In Kuhn's poker the value -1/18 is reached.", baseline="CFR after as many iterations")
def kuhn_value() -> Finding:
    game, gaps = kuhn_poker(), []
    for solver in (cfr_plus(), cfr()):
        state = solver.begin(game)
        for _ in range(500):
            state = solver.iterate(game, state)
        gaps.append(game.measure(solver.solution(game, state)))
    distance = [abs(g["value"] + 1 / 18) for g in gaps]
    return Finding(
        measured={
            "distance from -1/18, chips": distance[0],
            "CFR's distance, chips": distance[1],
            "exploitability, chips": gaps[0]["exploitability"],
            "CFR's exploitability, chips": gaps[1]["exploitability"],
        },
        criterion="after 500 iterations distance < 1e-4, and exploitability below CFR's",
        holds=distance[0] < 1e-4 and gaps[0]["exploitability"] < gaps[1]["exploitability"],
    )
