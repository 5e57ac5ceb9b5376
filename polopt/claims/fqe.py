"""These programs measure what the paper of fitted Q evaluation claims."""

import dataclasses

import numpy as np

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.effects import Less, effect
from polopt.lab.logged import EpisodicProblem, endless_walk, long_walk
from polopt.methods.doubly_robust import doubly_robust
from polopt.methods.fqe import fqe
from polopt.methods.pdis import pdis
from polopt.metrics import OffPolicyEstimator
from polopt.metrics.value_table import ValueTable


@effect(
    "Over 20 decisions it errs less than per-decision importance sampling, by half or more.",
    kind="headline",
    method=lambda: fqe(by_step=True),
    controls={"pdis": pdis, "pdis, self-normalised": lambda: pdis(self_normalised=True)},
    criteria=[Less("error", times=0.5)],
    seeds=10,
    note="Root mean squared error over 30 logs of 100 episodes, four states, a target policy that takes an action with "
    "0.2 or 0.8 where the behaviour policy takes it with 0.5.",
)
def errs_less(metric: OffPolicyEstimator, *, seed: int) -> dict[str, float]:
    problem, behaviour, target = long_walk(20, seed)
    table = problem.simulate(behaviour, target, 3000, seed + 1_000_000)
    found = [metric.terms(table[np.arange(at, at + 100)]).estimate() for at in range(0, 3000, 100)]
    return {"error": float(np.sqrt(np.mean((np.array(found) - problem.value(target, 1.0)) ** 2)))}


def deterministic(seed: int) -> tuple[EpisodicProblem, np.ndarray]:
    """Returns a problem of four states, two actions and three decisions without chance, and a policy."""
    draw = np.random.default_rng(seed)
    transitions = np.eye(5)[draw.integers(4, size=(4, 2))]
    return EpisodicProblem(np.full(4, 0.25), transitions, draw.normal(size=(4, 2, 5)), 3), draw.dirichlet([1, 1], 4)


@claim(
    "In a process without chance it is the exact value, from any log that holds every action of the target policy.",
    kind="identity",
    baseline="per-decision importance sampling, which has the log's chance in it",
)
def exact() -> Finding:
    off, other = 0.0, np.inf
    for seed in range(10):
        problem, target = deterministic(seed)
        table, _ = problem.all_episodes(np.full((4, 2), 0.5), target)
        table = table[np.repeat(np.arange(len(table)), 1 + np.arange(len(table)) % 2)]  # unlike their probabilities
        start = np.bincount([int(s) for s in table.state[:, 0]], minlength=4) / len(table)  # type: ignore[index]
        truth = dataclasses.replace(problem, start=start).value(target, 0.9)
        off = max(off, abs(fqe(gamma=0.9, by_step=True).terms(table).estimate() - truth))
        other = min(other, abs(pdis(gamma=0.9).terms(table).estimate() - truth))
    return Finding(
        measured={"distance to the value": off, "per-decision importance sampling": float(other)},
        criterion="the first < 1e-9, the second > 1e-6, on ten problems",
        holds=off < 1e-9 and other > 1e-6,
    )


@claim(
    "Where states are left out of the log's `state`, more data do not help it: its error is the table's.",
    kind="part",
    baseline="doubly robust, whose error goes to 0",
)
def confounded() -> Finding:
    problem, behaviour, target = long_walk(3, 5)
    behaviour = np.array([[0.2, 0.8], [0.8, 0.2], [0.5, 0.5], [0.3, 0.7]])
    target = np.tile([0.6, 0.4], (4, 1))
    table = problem.simulate(behaviour, target, 60_000, 0)
    table = dataclasses.replace(table, state=np.zeros_like(table.reward, int))
    truth = problem.value(target, 1.0)
    found = {"fqe": fqe(by_step=True), "doubly robust": doubly_robust()}
    off = {name: abs(metric.terms(table).estimate() - truth) for name, metric in found.items()}
    error = float(doubly_robust().terms(table).influence().std(ddof=1)) / len(table) ** 0.5
    return Finding(
        measured={**off, "standard error of doubly robust": error},
        criterion="60,000 episodes: fitted Q evaluation is off by more than 5 standard errors, doubly robust by less "
        "than 4",
        holds=off["fqe"] > 5 * error and off["doubly robust"] < 4 * error,
        note="Four states that the policy's record shows as one; the behaviour policy differs between them.",
    )


@claim(
    "Of cut episodes, the value of going on for ever comes out where the last decision is left out of the means.",
    kind="part",
    baseline="the cut taken for an end",
)
def cut_episodes() -> Finding:
    off: dict[str, list[float]] = {"cut": [], "end": []}
    for seed in range(10):
        problem, behaviour, target, truth = endless_walk(20, seed, 0.95)
        table = problem.simulate(behaviour, target, 2000, seed)
        for name, endless in (("cut", True), ("end", False)):
            off[name].append(abs(fqe(gamma=0.95, endless=endless).terms(table).estimate() - truth))
    cut, end = (float(np.mean(x)) for x in off.values())
    return Finding(
        measured={"mean error, endless": cut, "mean error, ended": end},
        criterion="a quarter of the error or less, over ten problems",
        holds=cut < end / 4,
    )


@mutation("The value of a state is that of the logged actions and not of the target policy's.", kills=exact)
def behaviours_actions(replace: Replace) -> None:
    system = ValueTable.system

    def logged_alone(self: ValueTable, ridge: float = 0.0) -> object:
        alike = np.ones_like(self.probability) / np.bincount(self.pairs[:, 0])[self.pairs[:, 0]]
        return system(dataclasses.replace(self, probability=alike), ridge)

    replace(ValueTable, "system", logged_alone)
