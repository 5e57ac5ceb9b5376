"""How often intervals of off-policy estimates hold the true value.

python -m benchmarks.coverage
python -m benchmarks.coverage --only magic switch-dr     these; the others' rows stay

Random problems whose values are known; every estimator and interval on the same logs. Results are in
benchmarks/results/coverage.{json,md}.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import table
from benchmarks.methods import ROOT
from benchmarks.spec import HERE
from polopt.lab.logged import long_walk
from polopt.methods.doubly_robust import doubly_robust
from polopt.methods.dr_shrinkage import dr_shrinkage
from polopt.methods.dualdice import dualdice
from polopt.methods.fqe import fqe
from polopt.methods.magic import magic
from polopt.methods.mis import mis
from polopt.methods.mrdr import mrdr
from polopt.methods.pdis import pdis
from polopt.methods.switch_dr import switch_dr
from polopt.methods.wis import wis
from polopt.metrics import LoggedMetric, clopper_pearson

RESULTS = HERE / "results" / "coverage"
PROBLEMS, LOGS, LEVEL = 10, 20, 0.9
EPISODES, DECISIONS = (50, 250), (1, 5, 20)
Build = Callable[[], LoggedMetric]
ESTIMATORS: dict[str, Build] = {
    "pdis, Student's": lambda: pdis(level=LEVEL),
    "pdis, bootstrap": lambda: pdis(level=LEVEL, interval="bootstrap").but(resamples=400),
    "pdis, self-normalised": lambda: pdis(level=LEVEL, self_normalised=True),
    "wis, bootstrap": lambda: wis(level=LEVEL).but(resamples=400),
    "wis, Student's": lambda: wis(level=LEVEL, interval="t"),
    "doubly-robust": lambda: doubly_robust(level=LEVEL),
    "doubly-robust, self-normalised": lambda: doubly_robust(level=LEVEL, self_normalised=True),
    "mrdr": lambda: mrdr(level=LEVEL),
    "switch-dr": lambda: switch_dr(level=LEVEL),
    "dr-shrinkage": lambda: dr_shrinkage(level=LEVEL),
    "magic": lambda: magic(level=LEVEL),
    "fqe": lambda: fqe(level=LEVEL, by_step=True, resamples=50),
    "mis": lambda: mis(level=LEVEL).but(resamples=50),
    "dualdice": lambda: dualdice(gamma=1.0, endless=False, level=LEVEL, resamples=50),
}


def covered(metric: LoggedMetric, decisions: int, episodes: int) -> tuple[int, float, int]:
    """Returns how many intervals hold the truth, their mean width, and how many came with a caution."""
    held, widths, cautions = 0, [], 0
    for seed in range(PROBLEMS):
        problem, behaviour, target = long_walk(decisions, seed)
        truth = problem.value(target, 1.0)
        for log in range(LOGS):
            found = metric(problem.simulate(behaviour, target, episodes, 1000 * seed + log))
            interval = found.intervals["estimate"]
            held += interval.low <= truth <= interval.high
            widths.append(interval.high - interval.low)
            cautions += bool(found.cautions)
    return held, float(np.mean(widths)), cautions


def markdown(data: dict[str, Any]) -> str:
    it = data["about"]
    lines = ["# How often intervals of off-policy estimates hold the true value", ""]
    lines += [f"{it['date']}, commit {it['commit']}, `{it['command']}`.", "", table.machine(it), ""]
    lines += [
        f"Intervals of {LEVEL:.0%} on {PROBLEMS} random problems of four states and two actions, {LOGS} logs of each; "
        "the target policy takes an action with 0.2 or 0.8 where the behaviour policy takes it with 0.5. In each cell "
        "the share of intervals that hold the true value, of 200, with the exact interval of that share where the "
        "level is not in it, then their mean width, and the share that came with a caution. `dualdice` takes all steps "
        "for one process, which problems with an end after a number of steps are not, and is biased for that.",
    ]
    for decisions in DECISIONS:
        heads = "|".join(f"{n:,} episodes" for n in EPISODES)
        lines += [
            "",
            f"## {decisions} decision{'s' * (decisions > 1)}",
            "",
            f"|estimator|{heads}|",
            "|---|---|---|",
        ]
        for name in ESTIMATORS:
            cells = [_cell(data["rows"][f"{name}, {decisions}, {n}"]) for n in EPISODES]
            lines.append(f"|{name}|{'|'.join(cells)}|")
    return "\n".join(lines) + "\n"


def _cell(row: list[float]) -> str:
    held, width, cautions = row
    n = PROBLEMS * LOGS
    own = clopper_pearson(held, n, 0.99)
    outside = "" if own.low <= LEVEL <= own.high else f" ({own.low:.0%} to {own.high:.0%})"
    return f"{held / n:.0%}{outside}, {width:.2g}" + (f", {cautions / n:.0%} cautioned" if cautions else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], choices=sorted(ESTIMATORS), metavar="ESTIMATOR")
    only = parser.parse_args().only
    file = RESULTS.with_suffix(".json")
    known = json.loads(file.read_text(encoding="utf-8"))["rows"] if only and file.is_file() else {}
    about = table.about(ROOT, threads=1, module="coverage")
    rows = {
        f"{name}, {decisions}, {episodes}": covered(build(), decisions, episodes)
        for decisions in DECISIONS
        for episodes in EPISODES
        for name, build in ESTIMATORS.items()
        if not only or name in only
    }
    rows = {**known, **rows}
    about["load_after"] = os.getloadavg()
    data = {"about": about, "rows": rows}
    file.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    RESULTS.with_suffix(".md").write_text(markdown(data), encoding="utf-8")
    print(markdown(data))


if __name__ == "__main__":
    main()
