"""polopt measure."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from polopt.cli import wording
from polopt.cli.command_group import UsageError, checked

if TYPE_CHECKING:
    from polopt.metrics import Interval, Measured

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
        Path, typer.Argument(metavar="FILE", help="Rows that the metric reads: JSON lines, CSV or Parquet.")
    ],
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of the method; repeatable.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="NAME=COLUMN", help="The file's own name of a column; repeatable."),
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
        data = measuring.data_of(part, file, columns_of(column or []))
        found: Measured = part(data)
        if html is not None:
            from polopt.report import write_measured

            write_measured(part, metric, data, found, file, html)
    if as_json:
        typer.echo(json.dumps({"metric": metric, "file": str(file), **plain(found)}, indent=1, ensure_ascii=False))
        return
    screen = wording.screen()
    screen.print(_table(found))
    for caution in found.cautions:
        screen.print(Text(f"\nCaution: {caution}.", style="yellow"), soft_wrap=True)
    if html is not None:
        screen.print(f"Report  {html}", soft_wrap=True)


def columns_of(pairs: list[str]) -> dict[str, str]:
    """Returns the file's name of each column that `--column` gives, by polopt's."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, column = pair.partition("=")
        if not equals or not name or not column:
            raise UsageError(f"--column {pair}: expected name=column, as in --column behaviour_probability=propensity")
        found[name] = column
    return found


def plain(found: Measured) -> dict[str, Any]:
    """Converts a result to JSON data; an infinite end of an interval is null."""
    intervals = {name: dataclasses.asdict(interval) for name, interval in found.intervals.items()}
    for interval in intervals.values():
        interval |= {end: None for end in ("low", "high") if not math.isfinite(interval[end])}
    return {"values": dict(found.values), "intervals": intervals, "cautions": list(found.cautions)}


def _table(found: Measured) -> Table:
    table = Table.grid(padding=(0, 2))
    ordered = [*(name for name in NAMES if name in found.values), *(n for n in found.values if n not in NAMES)]
    for name in ordered:
        interval = found.intervals.get(name)
        style = "bold" if name == "estimate" else None
        table.add_row(NAMES.get(name, name), f"{found.values[name]:.4g}", _ends(interval), style=style)
    return table


def _ends(interval: Interval | None) -> str:
    return "" if interval is None else f"[{interval.low:.4g}, {interval.high:.4g}] ({interval.level:.0%})"
