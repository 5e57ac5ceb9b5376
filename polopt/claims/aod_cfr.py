"""These programs measure what the paper of AOD-CFR claims."""

import torch

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.games import exploitability_table
from polopt.methods import aod_cfr as parts
from polopt.methods.aod_cfr import AODRegretSum, aod_cfr
from polopt.methods.dcfr import dcfr
from polopt.methods.pdcfr_plus import pdcfr_plus
from polopt.problems import leduc_poker


@claim(
    "After the paper's 1,000 iterations the solution is far less exploitable than DCFR's.",
    kind="headline",
    baseline="DCFR and PDCFR+",
    cost="slow",
)
def faster() -> Finding:
    solvers = {"AOD-CFR": aod_cfr(), "DCFR": dcfr(), "PDCFR+": pdcfr_plus()}
    games = {"Leduc": leduc_poker()}
    found = exploitability_table(solvers, games, [1000])
    factor = min(found["Leduc", name, 1000] for name in ("DCFR", "PDCFR+")) / found["Leduc", "AOD-CFR", 1000]
    return Finding(
        measured={f"{game}, {name}": x for (game, name, _), x in found.items()} | {"least factor": factor},
        criterion="a twentieth of DCFR's and of PDCFR+'s on Leduc poker",
        holds=factor > 20,
    )


@claim("In the first hundred iterations DCFR is the better one.", kind="limit", baseline="DCFR on Leduc poker")
def early() -> Finding:
    found = exploitability_table({"AOD-CFR": aod_cfr(), "DCFR": dcfr()}, {"Leduc": leduc_poker()}, [100])
    return Finding(
        measured={f"{name}, chips": x for (_, name, _), x in found.items()},
        criterion="AOD-CFR's exploitability is larger after 100 iterations",
        holds=found["Leduc", "AOD-CFR", 100] > found["Leduc", "DCFR", 100],
        note="The schedules are made for 1,000 iterations.",
    )


@mutation("The schedules stay at their start.", kills=faster)
def no_schedule(replace: Replace) -> None:
    replace(parts, "_progress", lambda t, horizon: 0.0)


@mutation("Sums are clipped at 0.", kills=faster)
def clipped(replace: Replace) -> None:
    replace(AODRegretSum, "forward", lambda self, total, regret, t: torch.clamp(total + regret, min=0))
