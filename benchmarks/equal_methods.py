"""Measures how often `polopt compare` tells equal methods apart, at a nominal 5 %, through `Comparison.table` itself.

python -m benchmarks.equal_methods

Two methods draw their scores from one distribution; paired seeds may share some of it. Counted are comparisons whose
difference leaves out 0, and whose probability of improvement leaves out 1/2. The last rows are methods of equal mean
that are not equal in distribution. Then: tables of 20 methods against one, all equal, in which at least one interval
leaves out 0, and in which at least one star stands. Last: methods that somebody compares after every seed, from the
third to the 20th, and whose difference leaves out 0 at some time.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import table
from benchmarks.spec import HERE
from polopt.metrics import Comparison, MethodRuns, anytime_interval, t_interval

RESULTS = HERE / "results" / "equal_methods"
SEEDS, REPEATS, TABLES = (3, 4, 5, 10), 2000, 400
LOOKS = range(3, 21)
Draw = Callable[[np.random.Generator, int], tuple[NDArray[np.float64], NDArray[np.float64]]]


def paired(rho: float) -> Draw:
    """Normal scores of which paired seeds share the correlation `rho`."""

    def draw(g: np.random.Generator, n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        shared = math.sqrt(rho) * g.normal(size=n)
        return tuple(0.6 + 0.1 * (shared + math.sqrt(1 - rho) * g.normal(size=n)) for _ in range(2))  # type: ignore[return-value]

    return draw


def alike(one: Callable[[np.random.Generator, int], NDArray[np.float64]]) -> Draw:
    return lambda g, n: (one(g, n), one(g, n))


def collapsing(share: float) -> Draw:
    return alike(lambda g, n: np.where(g.random(n) < share, 0.1, g.normal(0.7, 0.02, n)))


OUTCOMES: dict[str, Draw] = {
    "normal": paired(0.0),
    "normal, correlation 0.5": paired(0.5),
    "normal, correlation 0.9": paired(0.9),
    "exponential": alike(lambda g, n: g.exponential(0.1, n)),
    "lognormal, sigma 1.2": alike(lambda g, n: g.lognormal(-3, 1.2, n)),
    "100 problems, 97 % solved": alike(lambda g, n: g.binomial(100, 0.97, n) / 100),
    "10 % collapse": collapsing(0.1),
    "20 % collapse": collapsing(0.2),
    "two modes": alike(lambda g, n: g.choice([0.3, 0.7], n) + g.normal(0, 0.01, n)),
    "equal mean: exponential, normal": lambda g, n: (g.exponential(0.1, n), g.normal(0.1, 0.01, n)),
    "equal mean: spread 1 and 10": lambda g, n: (g.normal(0.5, 0.01, n), g.normal(0.5, 0.1, n)),
}


def runs(name: str, scores: NDArray[np.float64]) -> MethodRuns:
    return MethodRuns(name, range(len(scores)), scores.tolist())


def flags(name: str, n: int) -> dict[str, Any]:
    """Shares of comparisons in which equal methods differ."""
    g, found = np.random.default_rng(n), np.zeros(2)
    for _ in range(REPEATS):
        a, b = OUTCOMES[name](g, n)
        row = Comparison([runs("a", a), runs("b", b)], unit="score").table()[1]
        assert row.difference is not None
        assert row.improvement is not None
        found += [
            not row.difference.low <= 0 <= row.difference.high,
            not row.improvement.low <= 0.5 <= row.improvement.high,
        ]
    return {"outcome": name, "seeds": n, "difference": found[0] / REPEATS, "improvement": found[1] / REPEATS}


def tables(n: int) -> dict[str, Any]:
    """Shares of tables of 20 equal methods against one in which some differ."""
    g, found = np.random.default_rng(100 + n), np.zeros(2)
    for _ in range(TABLES):
        rows = Comparison([runs(f"m{i}", g.normal(size=n)) for i in range(21)], unit="score").table()[1:]
        intervals = [row.difference for row in rows if row.difference is not None]
        found += [any(not i.low <= 0 <= i.high for i in intervals), any(row.significant for row in rows)]
    return {"seeds": n, "some interval leaves out 0": found[0] / TABLES, "some star": found[1] / TABLES}


def looked_at(name: str) -> dict[str, Any]:
    """Shares of sequences of seeds in which equal methods differ at some look."""
    g, found = np.random.default_rng(200), np.zeros(2)
    for _ in range(REPEATS):
        a, b = OUTCOMES[name](g, LOOKS[-1])
        for way, interval_of in enumerate((t_interval, anytime_interval)):  # of paired seeds, as in the table
            looks = [interval_of(a[:n] - b[:n]) for n in LOOKS]
            found[way] += any(not look.low <= 0 <= look.high for look in looks)
    once, anytime = found / REPEATS
    return {"outcome": name, "decided beforehand": once, "for any time": anytime}


def page(data: dict[str, Any]) -> str:
    lines = [
        "# Equal methods in `polopt compare`",
        "",
        f"Share of {REPEATS} comparisons of two equal methods that tell them apart, in per cent; nominal 5, standard "
        f"error 0.5. `{data['about']['command']}`, commit {data['about']['commit']}.",
        "",
        "|scores|" + "".join(f"difference, {n} seeds|" for n in SEEDS) + "".join(f"improvement, {n}|" for n in SEEDS),
        "|---|" + "---:|" * (2 * len(SEEDS)),
    ]
    by = {(row["outcome"], row["seeds"]): row for row in data["rows"]}
    for name in OUTCOMES:
        cells = [f"{100 * by[name, n][what]:.1f}" for what in ("difference", "improvement") for n in SEEDS]
        lines.append(f"|{name}|{'|'.join(cells)}|")
    lines += [
        "",
        f"{TABLES} tables of 20 equal methods against one, normal scores:",
        "",
        "|seeds|some interval leaves out 0, %|some method has a star, %|",
        "|---:|---:|---:|",
    ]
    for row in data["tables"]:
        lines.append(f"|{row['seeds']}|{100 * row['some interval leaves out 0']:.1f}|{100 * row['some star']:.1f}|")
    lines += [
        "",
        f"{REPEATS} pairs of equal methods, compared after every seed from {LOOKS[0]} to {LOOKS[-1]}: in so many, "
        "in per cent, the difference leaves out 0 at some time. For that there is `--anytime`:",
        "",
        "|scores|interval for a number of seeds that was decided beforehand|interval for any time|",
        "|---|---:|---:|",
    ]
    for row in data["looks"]:
        cells = [f"{100 * row[way]:.1f}" for way in ("decided beforehand", "for any time")]
        lines.append(f"|{row['outcome']}|{'|'.join(cells)}|")
    return "\n".join(lines) + "\n"


def main() -> None:
    cases = [(name, n) for name in OUTCOMES for n in SEEDS]
    with ProcessPoolExecutor(os.cpu_count() or 1) as pool:
        rows = list(pool.map(flags, *zip(*cases, strict=True)))
        found = list(pool.map(tables, SEEDS))
        looks = list(pool.map(looked_at, OUTCOMES))
    about = table.about(HERE.parent, threads=1, module="equal_methods")
    data = {"about": about, "rows": rows, "tables": found, "looks": looks}
    RESULTS.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    RESULTS.with_suffix(".md").write_text(page(data), encoding="utf-8")
    print(page(data))


if __name__ == "__main__":
    main()
