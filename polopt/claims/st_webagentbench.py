"""These programs measure what the paper of ST-WebAgentBench claims."""

import numpy as np

from polopt.claim import Finding, Replace, claim, mutation
from polopt.guards import PrivilegeRule, Privileges, ToolCall
from polopt.methods.st_webagentbench import CompletionUnderPolicy, st_webagentbench
from polopt.metrics import PolicyRuns

TASKS, RATE, SUCCESS = 2000, 0.1, 0.6


def runs(policies: int, seed: int, guard: Privileges | None = None, repeats: int = 1) -> PolicyRuns:
    """Returns runs of an agent that does a task's own call with probability 0.6, and the call that each policy forbids
    with probability 0.1, independently; a policy is violated if its call has run."""
    draw = np.random.default_rng(seed)
    rows: list[tuple[str, str, bool, str, str, bool, bool]] = []
    for task in range(TASKS):
        for run in range(repeats):
            success, tempted = bool(draw.random() < SUCCESS), draw.random(policies) < RATE
            calls = [ToolCall(f"forbidden {j}", {}) for j in range(policies) if tempted[j]]
            calls += [ToolCall("task", {})] if success else []
            ran = {call.name for call in calls if guard is None or guard(call).allow}
            rows += [
                (f"{task}", f"{run}", "task" in ran, f"{j}", f"dimension {j % 2}", f"forbidden {j}" in ran, False)
                for j in range(policies)
            ]
    return PolicyRuns(*(list(column) for column in zip(*rows, strict=True)))


@claim(
    "Completion under policies falls behind completion the more policies there are, at the rate of their violations.",
    kind="headline",
    baseline="completion, which does not see violations",
)
def gap_grows() -> Finding:
    measured: dict[str, float] = {}
    intervals: dict[str, tuple[float, float]] = {}
    wrong = 0
    for m in (1, 2, 4, 8):
        found = st_webagentbench(resamples=200)(runs(m, seed=m))
        cup = found.intervals["CuP"]
        expected = SUCCESS * (1 - RATE) ** m
        measured |= {f"CuP of {m} policies": cup.estimate, f"expected of {m}": expected}
        intervals[f"CuP of {m} policies"] = (cup.low, cup.high)
        error = (expected * (1 - expected) / TASKS) ** 0.5
        wrong += abs(cup.estimate - expected) > 3 * error or found.values["CuP"] > found.values["CR"]
    falls = [measured[f"CuP of {m} policies"] for m in (1, 2, 4, 8)]
    return Finding(
        measured=measured,
        criterion="CuP within 3 standard errors of 0.6 (1 - 0.1)^m for m = 1, 2, 4, 8, falling in m, never above CR",
        holds=wrong == 0 and falls == sorted(falls, reverse=True),
        intervals=intervals,
        note="2,000 simulated tasks each; an agent that violates each policy with probability 0.1, independently.",
    )


@claim(
    "Under a guard with complete rules, completion under policies is completion, and no risk is left.",
    kind="ours",
    baseline="the same agent without a guard, whose risk is the rate at which violations were planted",
)
def guard_closes_the_gap() -> Finding:
    guard = Privileges(rules=[PrivilegeRule(tool="task")])
    metric = st_webagentbench(resamples=200)
    free, own = metric(runs(4, seed=11)).values, metric(runs(4, seed=11, guard=guard)).values
    risks = {
        name: [values[f"dimension {d}, risk"] for d in range(2)] for name, values in (("free", free), ("own", own))
    }
    return Finding(
        measured={"CR": own["CR"], "CuP": own["CuP"], "CuP without": free["CuP"], "risk": max(risks["own"]),
                  "risk without, least": min(risks["free"]), "risk without, most": max(risks["free"])},
        criterion="with: CuP = CR = the CR without, risk 0; without: both risks within 0.02 of 0.1, CuP < CR",
        holds=own["CuP"] == own["CR"] == free["CR"] and max(risks["own"]) == 0 and free["CuP"] < free["CR"]
        and all(abs(risk - RATE) < 0.02 for risk in risks["free"]),
        note="2,000 simulated tasks with four policies in two dimensions.",
    )  # fmt: skip


@claim(
    "all-pass@k of independent runs is the k-th power of a run's completion under policies.",
    kind="identity",
    baseline="none: an identity",
)
def all_pass() -> Finding:
    found = st_webagentbench(k=(1, 2, 4), resamples=50)(runs(2, seed=5, repeats=4)).values
    q = SUCCESS * (1 - RATE) ** 2
    errors = [abs(found[f"all-pass@{k}"] - q**k) / (q**k * (1 - q**k) / TASKS) ** 0.5 for k in (1, 2, 4)]
    return Finding(
        measured={f"all-pass@{k}": found[f"all-pass@{k}"] for k in (1, 2, 4)} | {"standard errors, most": max(errors)},
        criterion="within 3 standard errors of q^k for k = 1, 2, 4, and not increasing in k; for k = 1 it is CuP",
        holds=max(errors) < 3
        and found["all-pass@1"] >= found["all-pass@2"] >= found["all-pass@4"]
        and abs(found["all-pass@1"] - found["CuP"]) < 1e-12,
    )


@mutation("Violations are not looked at.", kills=gap_grows)
def ignores_violations(replace: Replace) -> None:
    replace(CompletionUnderPolicy, "clean", staticmethod(lambda data, run: np.ones(run.max() + 1, bool)))
