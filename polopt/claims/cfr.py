"""These programs measure what the paper of CFR claims."""

import math

from torch import Tensor

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.games import exploitabilities
from polopt.methods.cfr import cfr
from polopt.problems import ExtensiveGame, kuhn_poker, leduc_poker
from polopt.solvers import RegretMinimizer
from polopt.solvers.solver import State


@claim(
    "The average strategy approaches a Nash equilibrium: in Kuhn's poker its value is -1/18.",
    kind="headline",
    baseline="uniform",
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


@claim(
    "Exploitability falls at least as fast as 1 / sqrt(iterations).",
    kind="part",
    baseline="the slope -1/2 of the bound",
)
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


@mutation("The solution is the last strategy, not the average one.", kills=kuhn_value)
def last_strategy(replace: Replace) -> None:
    def solution(self: RegretMinimizer, problem: ExtensiveGame, state: State) -> Tensor:
        return state["strategy"]

    replace(RegretMinimizer, "solution", solution)


@mutation("An information set counts in the average alike, whether the player would come there or not.", kills=rate)
def reach_ignored(replace: Replace) -> None:
    iterate = RegretMinimizer.iterate

    def alike(self: RegretMinimizer, problem: ExtensiveGame, state: State) -> dict[str, Tensor]:
        return iterate(self, problem, state) | {"average": state["average"] + state["strategy"]}

    replace(RegretMinimizer, "iterate", alike)
