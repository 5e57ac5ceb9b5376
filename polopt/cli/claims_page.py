"""Prints what `polopt claims` shows: each claim when it is measured, and the counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console, Group
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from polopt.evidence import ClaimResult, ClaimRun, SeededClaim


def measured(runs: Sequence[ClaimRun], screen: Console, results: Iterable[ClaimResult]) -> list[ClaimResult]:
    """Prints each claim and planted bug when the result of its last seed comes, and returns the results."""
    found: list[ClaimResult] = []
    expected: dict[tuple[str, str, str], int] = {}
    for run in runs:
        key = (run.slug, run.claim, run.mutation)
        expected[key] = expected.get(key, 0) + 1
    so_far: dict[tuple[str, str, str], list[ClaimResult]] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        task = progress.add_task("measuring", total=len(runs))
        for result in results:
            found.append(result)
            progress.advance(task)
            key = (result.slug, result.name, result.mutation)
            so_far.setdefault(key, []).append(result)
            if len(so_far[key]) == expected[key]:
                seeded = SeededClaim(tuple(sorted(so_far[key], key=lambda row: row.seed)))
                progress.console.print(_mutation_line(result) if result.mutation else _claim_line(seeded))
    return found


def verdict_of(rows: Sequence[SeededClaim]) -> str:
    """Counts the claims that hold on every seed, headline effects apart from the others."""
    found = [
        f"{sum(row.held == len(row.rows) for row in some)} of {len(some)} {name}"
        for name, some in (
            ("headline effects", [row for row in rows if row.rows[0].kind == "headline"]),
            ("other claims", [row for row in rows if row.rows[0].kind != "headline"]),
        )
        if some
    ]
    most = max((len(row.rows) for row in rows), default=1)
    return " and ".join(found or ["0 of 0 claims"]) + " hold" + (f" on {most} seeds of {most}" if most > 1 else "")


def _mutation_line(row: ClaimResult) -> Text:
    """Formats one planted bug: whether its claim noticed it."""
    mark = ("noticed", "green") if row.noticed else ("not noticed", "bold red")
    text = Text.assemble((f"{row.slug} ", "bold"), f"{row.mutation}  ", mark, (f"  by {row.name}", "dim"))
    return text if row.ended else text.append(f", {row.note}", "dim")


def _claim_line(seeded: SeededClaim) -> Padding:
    """Formats one claim: verdict and statement, then the measurement of its first seed, the criterion and the
    baseline."""
    row, held, seeds = seeded.rows[0], seeded.held, len(seeded.rows)
    mark = ("holds", "green") if held == seeds else ("fails", "bold red")
    if seeds > 1:
        mark = (f"holds on {held} of {seeds} seeds", "green" if held == seeds else "bold red" if not held else "yellow")
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    head = Text.assemble((f"{row.slug} ", "bold"), f"{row.name}  ", mark, (f"  {row.kind}, {row.seconds:.1f} s", "dim"))
    values = {name: f"{value:.4g}" for name, value in seeded.measured.items()}
    for name, (low, high) in seeded.intervals.items():
        if name in values:
            values[name] += f" ({low:.4g} to {high:.4g})"
    for name, value in (
        ("claim", row.statement),
        ("measured", ", ".join(f"{name} {value}" for name, value in values.items())),
        ("criterion", row.criterion),
        ("met", f"on {row.won[0]} of {row.won[1]} seeds" if row.won else ""),
        ("step sizes", ", ".join(f"{name} {size:g}" for name, size in row.step_sizes.items())),
        ("baseline", row.baseline),
        ("note", row.note),
    ):
        if value:
            table.add_row(f"  {name}", Text(value))
    return Padding(Group(head, table), (0, 0, 1, 0))
