"""A family of environments, compared by polopt compare --family."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table
from rich.text import Text

from polopt.cli.measure import result_grid
from polopt.cli.policies import plain
from polopt.cli.wording import shown_number, shown_share

if TYPE_CHECKING:
    from polopt.display.trials import Board
    from polopt.metrics import Comparison, Measured

METRIC = "mdp-family-eval"


def compare_over(
    methods: list[Any], family: dict[str, list[Any]], common: dict[str, Any], watch: Board, *, as_json: bool
) -> None:
    """Compares methods in every setting of a family, prints the table, and writes family.json and the pages."""
    from polopt import catalogue
    from polopt.report import write_comparison, write_measured
    from polopt.training.compare import about_folder
    from polopt.training.families import compare_family, family_settings

    found: dict[str, Comparison] = {}

    def ready(name: str, comparison: Comparison, folder: Path) -> None:
        found[name] = comparison
        write_comparison(comparison, folder, about_folder(folder))

    with watch:
        scores = compare_family(methods, family, ready=ready, **common)
    metric = catalogue.metric(METRIC, sampled=False)  # the family is what was named, not a sample of more
    measured: Measured = metric(scores)
    folder: Path = common["folder"]
    settings = family_settings(family, common["changes"])
    tables = {name: json.loads((folder / name / "comparison.json").read_text())["table"] for name in settings}
    written = {"metric": METRIC, "settings": settings, "tables": tables, **plain(measured)}
    text = json.dumps(written, indent=1, ensure_ascii=False)
    (folder / "family.json").write_text(text, encoding="utf-8")
    page = folder / "report.html"
    write_measured(metric, METRIC, scores, measured, folder, page)
    screen = watch.screen
    if as_json:
        typer.echo(text)
    else:
        screen.print(family_table(found))
        screen.print(Text("\nOver the family", style="bold"))
        screen.print(result_grid(measured))
        for caution in measured.cautions:
            screen.print(Text(f"\nCaution: {caution}.", style="yellow"), soft_wrap=True)
    screen.print(f"Report  {page}", soft_wrap=True)


def family_table(found: dict[str, Comparison]) -> Table:
    """Tabulates the scores of methods in each setting, and their differences to the first, with intervals."""
    from polopt.training.estimates import SHARE

    first = next(iter(found.values()))
    base = first.methods[0].name
    table = Table(
        title=f"Held-out {first.score} in each setting, over seeds, {100 * first.level:g} % intervals",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    table.add_column("setting", overflow="fold")
    table.add_column("method", style="bold")
    table.add_column(first.score, justify="right")
    table.add_column(f"against {base}{', points' if first.unit == SHARE else ''}", justify="right")
    for name, comparison in found.items():
        share = comparison.unit == SHARE
        for row in comparison.table():
            score = shown_share(row.final) if share else shown_number(row.final)
            difference = ""
            if row.difference:
                difference = shown_share(row.difference, "+", "") if share else shown_number(row.difference, "+")
            table.add_row(name, row.name, score, difference)
    return table
