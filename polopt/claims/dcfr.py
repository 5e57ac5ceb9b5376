"""These programs measure what the paper of DCFR claims."""

import torch
from torch import Tensor

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.games import exploitability_table
from polopt.methods.cfr import cfr
from polopt.methods.cfr_plus import cfr_plus
from polopt.methods.dcfr import dcfr
from polopt.problems import kuhn_poker, leduc_poker, liars_dice
from polopt.solvers import DiscountedRegretSum

ITERATIONS = [100, 300]


@claim(
    "At an equal number of iterations the solution is less exploitable than CFR+'s.",
    kind="headline",
    baseline="CFR+, and CFR with alternating players",
    cost="slow",
)
def faster() -> Finding:
    solvers = {"DCFR": dcfr(), "CFR+": cfr_plus(), "CFR": cfr(alternating=True)}
    games = {"Leduc": leduc_poker(), "liar's dice": liars_dice()}
    found = exploitability_table(solvers, games, ITERATIONS)
    least = min(x / found[game, "DCFR", t] for (game, name, t), x in found.items() if name != "DCFR")
    return Finding(
        measured={f"{game}, {name} after {t}": x for (game, name, t), x in found.items()} | {"least factor": least},
        criterion="smaller on Leduc poker and liar's dice after 100 and 300 iterations than both",
        holds=least > 1,
        note="Liar's dice has one die of four sides for each of two players.",
    )


@claim("In Kuhn's poker CFR+ is the better one.", kind="limit", baseline="CFR+ after 500 iterations")
def kuhn() -> Finding:
    found = exploitability_table({"DCFR": dcfr(), "CFR+": cfr_plus()}, {"Kuhn": kuhn_poker()}, [500])
    return Finding(
        measured={f"{name}, chips": x for (_, name, _), x in found.items()},
        criterion="DCFR's exploitability is larger",
        holds=found["Kuhn", "DCFR", 500] > found["Kuhn", "CFR+", 500],
    )


@mutation("The discounts are exchanged: positive regrets have that of the others.", kills=faster)
def exchanged(replace: Replace) -> None:
    forward = DiscountedRegretSum.forward

    def other(self: DiscountedRegretSum, total: Tensor, regret: Tensor, t: int) -> Tensor:
        return -forward(self, -total, -regret, t)

    replace(DiscountedRegretSum, "forward", other)


@mutation("Nothing is forgotten.", kills=faster)
def undiscounted(replace: Replace) -> None:
    replace(DiscountedRegretSum, "forward", lambda self, total, regret, t: torch.add(total, regret))
