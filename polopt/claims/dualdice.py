"""These programs measure what the paper of DualDICE claims."""

import dataclasses

import numpy as np

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.effects import Less, effect
from polopt.lab.logged import LoggedDecisions, endless_walk
from polopt.methods.dualdice import dualdice
from polopt.methods.mis import mis
from polopt.methods.pdis import pdis
from polopt.metrics import DirectMethod, OffPolicyEstimator, TabularValues
from polopt.metrics.value_table import ValueTable

GAMMA = 0.95


@effect(
    "Over logs of 100 decisions it errs less than importance sampling, per decision or by state and step, by half or "
    "more.",
    kind="headline",
    method=lambda: dualdice(gamma=GAMMA),
    controls={
        "pdis, self-normalised": lambda: pdis(gamma=GAMMA, self_normalised=True),
        "mis": lambda: mis(gamma=GAMMA),
    },
    criteria=[Less("error", times=0.5)],
    seeds=10,
    note="Root mean squared error over 20 logs of 30 episodes; four states, gamma 0.95, and the value of going on for "
    "ever, of which 100 decisions leave out 0.6 %.",
)
def errs_less(metric: OffPolicyEstimator, *, seed: int) -> dict[str, float]:
    problem, behaviour, target, truth = endless_walk(100, seed, GAMMA)
    table = problem.simulate(behaviour, target, 600, seed + 1_000_000)
    found = [metric.terms(table[np.arange(at, at + 30)]).estimate() for at in range(0, 600, 30)]
    return {"error": float(np.sqrt(np.mean((np.array(found) - truth) ** 2)))}


@claim(
    "In a table it is the dual of fitted Q evaluation: the same number, though no value is fitted.",
    kind="identity",
    baseline="fitted Q evaluation with another discount",
)
def dual() -> Finding:
    off, other = 0.0, np.inf
    for seed in range(5):
        problem, behaviour, target, _ = endless_walk(20, seed, GAMMA)
        table = problem.simulate(behaviour, target, 100, seed)
        for endless in (True, False):
            own = dualdice(gamma=GAMMA, endless=endless).terms(table).estimate()
            model = TabularValues(endless=endless)
            off = max(off, abs(own - DirectMethod(gamma=GAMMA, model=model).terms(table).estimate()))
            other = min(other, abs(own - DirectMethod(gamma=0.9, model=model).terms(table).estimate()))
    return Finding(
        measured={"distance to fitted Q evaluation": off, "with gamma 0.9": float(other)},
        criterion="the first < 1e-9, the second > 1e-3",
        holds=off < 1e-9 and other > 1e-3,
    )


@claim(
    "It does not read the behaviour policy's probabilities: the log may be of several policies, and nobody need know "
    "which.",
    kind="part",
    baseline="self-normalised importance sampling with the same wrong probabilities",
)
def agnostic() -> Finding:
    off: dict[str, list[float]] = {"dualdice": [], "pdis": []}
    for seed in range(10):
        problem, behaviour, target, truth = endless_walk(20, seed, GAMMA)
        mixed = [(0.3 * target + 0.7 * behaviour, 1000), (0.9 * behaviour + 0.1 * (1 - target), 1000)]
        tables = [problem.simulate(policy, target, n, 2 * seed + i) for i, (policy, n) in enumerate(mixed)]
        table = joined(tables)
        table = dataclasses.replace(table, behaviour_logp=np.full_like(table.reward, np.log(0.5)))
        for name, metric in (("dualdice", dualdice(gamma=GAMMA)), ("pdis", pdis(gamma=GAMMA, self_normalised=True))):
            off[name].append(abs(metric.terms(table).estimate() - truth))
    own, other = (float(np.mean(x)) for x in off.values())
    return Finding(
        measured={"mean error": own, "self-normalised importance sampling": other},
        criterion="half of the error or less, over ten problems",
        holds=own < other / 2,
        note="Logs of two policies with 1,000 episodes each; by the logged probabilities every action was taken with "
        "0.5.",
    )


def joined(tables: list[LoggedDecisions]) -> LoggedDecisions:
    """Returns the episodes of several logs as one."""
    names = [f.name for f in dataclasses.fields(LoggedDecisions) if getattr(tables[0], f.name) is not None]
    return LoggedDecisions(**{name: np.concatenate([getattr(table, name) for table in tables]) for name in names})


@mutation("Visits are counted from states that are all as likely to be the first.", kills=dual)
def any_start(replace: Replace) -> None:
    replace(ValueTable, "starts", property(lambda self: np.full(int(self.state.max()) + 1, len(self.train) / 4)))
