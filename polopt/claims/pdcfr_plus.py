"""These programs measure what the paper of PDCFR+ claims."""

from torch import Tensor

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.games import exploitability_table
from polopt.methods.cfr_plus import cfr_plus
from polopt.methods.dcfr import dcfr
from polopt.methods.pdcfr_plus import PredictiveRegretMatching, pdcfr_plus
from polopt.problems import kuhn_poker, leduc_poker, liars_dice
from polopt.solvers import RegretIteration


@claim(
    "In games without poker's large payoffs predictions make exploitability fall far faster.",
    kind="headline",
    baseline="DCFR and CFR+ after 500 iterations",
    cost="slow",
)
def faster() -> Finding:
    solvers = {"PDCFR+": pdcfr_plus(), "DCFR": dcfr(), "CFR+": cfr_plus()}
    games = {"Kuhn": kuhn_poker(), "liar's dice": liars_dice(sides=3)}
    found = exploitability_table(solvers, games, [500])
    largest = max(found[game, "PDCFR+", 500] / x for (game, name, _), x in found.items() if name != "PDCFR+")
    return Finding(
        measured={f"{game}, {name}": x for (game, name, _), x in found.items()} | {"largest quotient": largest},
        criterion="at most a hundredth of both on Kuhn's poker and on liar's dice with three sides",
        holds=largest < 1e-2,
    )


@claim("On Leduc poker DCFR is the better one.", kind="limit", baseline="DCFR after 1,000 iterations")
def leduc() -> Finding:
    found = exploitability_table({"PDCFR+": pdcfr_plus(), "DCFR": dcfr()}, {"Leduc": leduc_poker()}, [1000])
    return Finding(
        measured={f"{name}, chips": x for (_, name, _), x in found.items()},
        criterion="PDCFR+'s exploitability is larger",
        holds=found["Leduc", "PDCFR+", 1000] > found["Leduc", "DCFR", 1000],
        note="The paper finds the same of its poker games.",
    )


@mutation("The strategy does not count the last regrets again.", kills=faster)
def no_prediction(replace: Replace) -> None:
    def plain(self: PredictiveRegretMatching, total: Tensor, found: RegretIteration, memory: Tensor) -> tuple:
        return self(found.game, total), memory

    replace(PredictiveRegretMatching, "advance", plain)
