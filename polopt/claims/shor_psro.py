"""These programs measure what the paper of SHOR-PSRO claims."""

import numpy as np

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.games import exploitability_table
from polopt.methods.psro import psro
from polopt.methods.shor_psro import SHORMeta, shor_psro
from polopt.problems import kuhn_poker, leduc_poker, liars_dice
from polopt.solvers import MetaSolver, NashLP, ProjectedReplicator

# As long as the default, in steps ten times as large.
REPLICATOR = ProjectedReplicator(steps=5000, dt=1e-2)


@claim(
    "With as many strategies the solution is less exploitable than with the meta-solvers that people made.",
    kind="headline",
    baseline="projected replicator dynamics, Nash equilibria and uniform distributions",
    cost="slow",
)
def fewer_strategies() -> Finding:
    baselines = {"replicator": REPLICATOR, "Nash": NashLP(), "uniform": MetaSolver()}
    solvers = {"SHOR": shor_psro(), **{name: psro(train_meta=meta) for name, meta in baselines.items()}}
    games = {"liar's dice": liars_dice(), "Kuhn with four cards": kuhn_poker(ranks=4)}
    found = exploitability_table(solvers, games, [30])
    factors = {
        f"{game}, {name} / SHOR": found[game, name, 30] / found[game, "SHOR", 30]
        for game in games
        for name in baselines
    }
    return Finding(
        measured={f"{game}, {name}": x for (game, name, _), x in found.items()} | factors,
        criterion="exploitability with 31 strategies is smaller than with each of them, on liar's dice with four sides "
        "and on Kuhn's poker with four cards",
        holds=min(factors.values()) > 1,
    )


@claim(
    "Its populations are better than those of uniform distributions, where both are evaluated by Nash equilibria.",
    kind="part",
    baseline="populations of uniform distributions and of projected replicator dynamics, evaluated alike",
    cost="slow",
)
def populations() -> Finding:
    solvers = {
        "SHOR": shor_psro(eval_meta=NashLP()),
        "uniform": psro(train_meta=MetaSolver(), eval_meta=NashLP()),
        "replicator": psro(train_meta=REPLICATOR, eval_meta=NashLP()),
    }
    games = {"Leduc": leduc_poker(), "liar's dice": liars_dice()}
    found = exploitability_table(solvers, games, [40])
    least = min(found[game, "uniform", 40] / found[game, "SHOR", 40] for game in games)
    return Finding(
        measured={f"{game}, {name}": x for (game, name, _), x in found.items()},
        criterion="exploitability with 41 strategies is smaller than with those of uniform distributions, on Leduc "
        "poker and liar's dice",
        holds=least > 1,
    )


@claim(
    "Where payoffs go round in circles its last distribution is no equilibrium, though its mean is near one.",
    kind="limit",
    baseline="the mean of the same rounds",
)
def circles() -> Finding:
    draw = np.random.default_rng(0)
    skew = draw.normal(size=(60, 60))
    table = (skew - skew.T) / np.sqrt(2)
    payoffs, last = np.stack([table, -table]), shor_psro().eval_meta
    gaps = {}
    for name, meta in {"last": last, "mean": last.but({"mean": True})}.items():
        x, y = meta(payoffs, 0)
        gaps[name] = float((table @ y).max() - (x @ table).min()) / 2
    return Finding(
        measured={f"exploitability of the {name} distribution": gap for name, gap in gaps.items()},
        criterion="a random antisymmetric game of 60 strategies: the last one's is more than twice that of the mean",
        holds=gaps["last"] > 2 * gaps["mean"],
    )


@mutation("Regrets are not summed.", kills=fewer_strategies)
def forgetful(replace: Replace) -> None:
    def last_payoffs(self: SHORMeta, payoffs: np.ndarray, k: int) -> np.ndarray:
        return MetaSolver.forward(self, payoffs, k)

    replace(SHORMeta, "forward", last_payoffs)


@mutation("Mean and last distribution are exchanged.", kills=circles)
def exchanged(replace: Replace) -> None:
    forward = SHORMeta.forward

    def other(self: SHORMeta, payoffs: np.ndarray, k: int) -> np.ndarray:
        return forward(self.but({"mean": not self.mean}), payoffs, k)

    replace(SHORMeta, "forward", other)
