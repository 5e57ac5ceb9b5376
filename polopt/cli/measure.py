"""polopt measure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from polopt.cli import wording
from polopt.cli.command_group import UsageError, checked
from polopt.cli.policies import ends, plain, policy_results

if TYPE_CHECKING:
    from polopt.metrics import Measured, ResultTable

# Labels of the numbers, in the order of printing.
NAMES = {
    "estimate": "estimate",
    "logged": "mean return of the log",
    "episodes": "episodes",
    "effective_sample_size": "effective sample size",
    "largest_weight": "largest weight",
    "largest_share": "its share of all weight",
    "mean_weight": "mean weight, 1 expected",
}


def measure(
    metric: Annotated[
        str,
        typer.Argument(metavar="METHOD", help="A metric, or file.py:function.", autocompletion=wording.complete_method),
    ],
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Rows that the metric reads, JSON lines, CSV or Parquet; or a run.")
    ],
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of the method; repeatable.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="NAME=COLUMN", help="The file's own name of a column; repeatable."),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME=COLUMN",
            help="A target policy by the column of its probabilities; repeatable, to choose among several.",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write the result as one page, with the metric's plot."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure a file, of logged decisions for one: an estimate, its interval, and how far to trust them."""
    from polopt import catalogue
    from polopt.training import measuring

    with checked():
        part = catalogue.metric(metric, **wording.settings(changes or []))
        if policy:
            policies = policy_results(
                part, metric, file, named_columns(policy, "--policy"), named_columns(column or [])
            )
            policies.show(html, as_json=as_json)
            return
        data = measuring.data_of(part, file, named_columns(column or []))
        found: Measured = part(data)
        if html is not None:
            from polopt.report import write_measured

            write_measured(part, metric, data, found, file, html)
    if as_json:
        typer.echo(json.dumps({"metric": metric, "file": str(file), **plain(found)}, indent=1, ensure_ascii=False))
        return
    screen = wording.screen()
    for table in map(_printed, found.tables):
        screen.print(table)
    if not found.tables:
        screen.print(result_grid(found))
    for caution in found.cautions:
        screen.print(Text(f"\nCaution: {caution}.", style="yellow"), soft_wrap=True)
    if html is not None:
        screen.print(f"Report  {html}", soft_wrap=True)


EXAMPLES = {"--column": "behaviour_probability=propensity", "--policy": "careful=careful_probability"}


def named_columns(pairs: list[str], option: str = "--column") -> dict[str, str]:
    """Returns the columns of a file by the names that an option's values give them, NAME=COLUMN."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, column = pair.partition("=")
        if not equals or not name or not column:
            raise UsageError(f"{option} {pair}: expected name=column, as in {option} {EXAMPLES[option]}")
        if name in found:
            raise UsageError(f"{option} {pair}: the name {name} is there twice")
        found[name] = column
    return found


def _printed(table: ResultTable) -> Table:
    shown = Table(title=table.title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    shown.caption, shown.caption_justify = f"{table.caption}\n", "left"
    for i, name in enumerate(table.columns):
        shown.add_column(name, justify="right" if i else "left", overflow="fold")
    for row in table.rows:
        shown.add_row(*map(Text, row))
    return shown


def result_grid(found: Measured) -> Table:
    """Tabulates numbers and their intervals."""
    table = Table.grid(padding=(0, 2))
    ordered = [*(name for name in NAMES if name in found.values), *(n for n in found.values if n not in NAMES)]
    for name in ordered:
        interval = found.intervals.get(name)
        style = "bold" if name == "estimate" else None
        table.add_row(NAMES.get(name, name), f"{found.values[name]:.4g}", ends(interval), style=style)
    return table
