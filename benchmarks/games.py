"""Time of an iteration of CFR and CFR+ beside OpenSpiel's solvers in C++, at equal exploitability, one thread each.

python -m benchmarks.games           about a minute, into benchmarks/results/games.{json,md}
python -m benchmarks.games --quick   does it run? measures nothing of use

Both do the same iterations: the exploitability of their average strategies is compared at the end, where that of CFR+
differs in its second digit, as rounding decides on which side of 0 a regret that is 0 falls; tests compare ten
iterations to nine digits. polopt runs them on
Leduc poker as OpenSpiel has it, whose cards have suits, and on its own, whose cards are dealt by rank, since suits
decide nothing. The solvers are timed in turn, so that whatever else the machine does meets all of them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from importlib.metadata import version
from statistics import median
from typing import Any

import pyspiel
import torch

import polopt as po
from benchmarks import table
from benchmarks.spec import HERE
from polopt.problems import ExtensiveGame, leduc_poker, open_spiel_game

RESULTS = HERE / "results"
SOLVERS: dict[str, tuple[str, dict[str, Any]]] = {
    "CFRSolver": ("cfr", {"alternating": True}),
    "CFRPlusSolver": ("cfr-plus", {}),
}


class Side:
    """One solver of a comparison: `step` runs an iteration, `gap` computes the exploitability reached."""

    def __init__(self, name: str, step: Callable[[], None], gap: Callable[[], float]) -> None:
        self.name, self.step, self.gap = name, step, gap
        self.seconds: list[float] = []

    def block(self, iterations: int) -> None:
        begun = time.perf_counter()
        for _ in range(iterations):
            self.step()
        self.seconds.append((time.perf_counter() - begun) / iterations)


def openspiel(solver: str) -> Side:
    game = pyspiel.load_game("leduc_poker")
    theirs = getattr(pyspiel, solver)(game)
    return Side(
        "OpenSpiel, C++",
        theirs.evaluate_and_update_policy,
        lambda: float(pyspiel.exploitability(game, theirs.average_policy())),
    )


def ours(name: str, solver: str, game: ExtensiveGame) -> Side:
    slug, settings = SOLVERS[solver]
    own = po.solver(slug, **settings)
    kept = [own.begin(game)]

    def step() -> None:
        kept[0] = own.iterate(game, kept[0])

    return Side(name, step, lambda: game.exploitability(own.solution(game, kept[0])))


def measure(blocks: int, iterations: int) -> list[dict[str, Any]]:
    """Times all solvers, each in so many blocks of so many iterations, of which the first does not count."""
    rows: list[dict[str, Any]] = []
    games = {"polopt, the same game": open_spiel_game(), "polopt, cards by rank": leduc_poker()}
    for solver in SOLVERS:
        sides = [openspiel(solver), *(ours(name, solver, game) for name, game in games.items())]
        for _ in range(blocks + 1):
            for side in sides:
                side.block(iterations)
        base = median(sides[0].seconds[1:])
        for side in sides:
            seconds = side.seconds[1:]
            rows.append(
                {
                    "solver": solver,
                    "side": side.name,
                    "ms": 1e3 * median(seconds),
                    "lowest_ms": 1e3 * min(seconds),
                    "highest_ms": 1e3 * max(seconds),
                    "times_faster": base / median(seconds),
                    "iterations": iterations * (blocks + 1),
                    "exploitability": side.gap(),
                }
            )
    return rows


def page(record: dict[str, Any]) -> str:
    found = record["about"]
    lines = [
        "# CFR beside OpenSpiel",
        "",
        f"Leduc poker, {found['machine']['cpu']}, {found['machine']['cores']} cores, one thread; torch "
        f"{found['versions']['torch']}, OpenSpiel {found['versions']['open_spiel']}, Python {found['python']}. Medians "
        "over blocks, with the fastest and the slowest block.",
        "",
        "| solver | side | ms an iteration | fastest, slowest | times as fast | iterations | exploitability, chips |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in record["rows"]:
        lines.append(
            f"| {row['solver']} | {row['side']} | {row['ms']:.2f} | {row['lowest_ms']:.2f}, {row['highest_ms']:.2f} | "
            f"{row['times_faster']:.1f} | {row['iterations']} | {row['exploitability']:.9f} |"
        )
    lines += ["", f"{found['date']}, `{found['command']}`, {found['commit']}."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    found = table.about(HERE, 1, "games")
    found["versions"] = {"open_spiel": version("open-spiel")} | found["versions"]
    record = {"about": found, "rows": measure(1, 2) if quick else measure(9, 20)}
    text = page(record)
    print(text)
    for solver in SOLVERS:
        gaps = [row["exploitability"] for row in record["rows"] if row["solver"] == solver]
        if max(gaps) > 1.05 * min(gaps):
            raise SystemExit(f"{solver}: the sides did not do the same iterations, exploitability {gaps}")
    if not quick:
        (RESULTS / "games.json").write_text(json.dumps(record, indent=1) + "\n")
        (RESULTS / "games.md").write_text(text)


if __name__ == "__main__":
    main()
