"""These programs measure what the paper of CFR+ claims."""

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.games import exploitabilities
from polopt.methods.cfr import cfr
from polopt.methods.cfr_plus import cfr_plus
from polopt.problems import kuhn_poker, leduc_poker
from polopt.solvers import LinearWeight, PositiveRegretSum


@claim(
    "At an equal number of iterations the solution is less exploitable than CFR's.",
    kind="headline",
    baseline="CFR, all players at once, and alternating",
)
def faster() -> Finding:
    game, iterations = leduc_poker(), [100, 500]
    ours = exploitabilities(cfr_plus(), game, iterations)
    measured = {f"CFR+ after {t}, chips": x for t, x in zip(iterations, ours, strict=True)}
    least = float("inf")
    for name, solver in (("CFR", cfr()), ("alternating CFR", cfr(alternating=True))):
        base = exploitabilities(solver, game, iterations)
        measured |= {f"{name} after {t}, chips": x for t, x in zip(iterations, base, strict=True)}
        least = min(least, *(b / a for a, b in zip(ours, base, strict=True)))
    return Finding(
        measured={**measured, "least factor": least},
        criterion="on Leduc poker CFR's exploitability is more than 3 times as large after 100 and 500 iterations",
        holds=least > 3,
    )


@claim("In Kuhn's poker the value -1/18 is reached.", kind="part", baseline="CFR after as many iterations")
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


@mutation("Regrets are not clipped at 0.", kills=faster)
def regrets_below_zero(replace: Replace) -> None:
    replace(PositiveRegretSum, "forward", lambda self, total, regret, t: total + regret)


@mutation("Every iteration counts alike in the average.", kills=faster)
def plain_average(replace: Replace) -> None:
    replace(LinearWeight, "forward", lambda self, t: 1.0)
