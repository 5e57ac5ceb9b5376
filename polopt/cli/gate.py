"""polopt gate."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from polopt.cli import wording
from polopt.cli.command_group import UsageError, checked
from polopt.cli.options import JsonOption

if TYPE_CHECKING:
    from polopt.metrics import GateReport

STYLES = {"pass": "green", "fail": "red", "unknown": "red"}
VERDICTS = {
    "ship": "Ship: all requirements are met",
    "warn": "Ship, with warnings",
    "block": "Block: a requirement is not met",
}


def gate(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="A finished run, or what polopt measure --json or polopt evaluate --json printed."
        ),
    ],
    requirements: Annotated[Path, typer.Argument(metavar="REQUIREMENTS", help="A YAML file.")],
    history: Annotated[
        Path | None,
        typer.Option("--history", metavar="FILE", help="Where reports are added; RUN/gates.jsonl if none."),
    ] = None,
    against: Annotated[
        int | None,
        typer.Option("--against", metavar="N", min=1, help="The report to compare with, from 1; the last one if none."),
    ] = None,
    uncorrected: Annotated[
        bool, typer.Option("--uncorrected", help="Without Holm's correction for several requirements.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Decide whether a policy ships: the bounds of its scores, not the scores, must meet requirements.

    Ends with code 0 if it ships, 1 if a requirement blocks it, 2 if something cannot be read.
    """
    from polopt.training import gating

    with checked():
        place = history if history is not None else source / f"{gating.HISTORY}.jsonl" if source.is_dir() else None
        report, record = gating.gate_source(source, requirements, corrected=not uncorrected)
        past = [] if place is None else gating.read_history(place)
        changes = None if (earlier := _earlier(past, against)) is None else gating.report_difference(earlier, record)
        if place is not None:
            gating.append_history(place, record)
    if as_json:
        typer.echo(json.dumps({**record, "changes": changes}, indent=1, ensure_ascii=False))
    else:
        screen = wording.screen()
        screen.print(_table(report))
        for caution in report.cautions:
            screen.print(Text(f"Caution: {caution}.", style="yellow"), soft_wrap=True)
        for line in _changes(changes, against or len(past)):
            screen.print(Text(line, style="dim"), soft_wrap=True)
        style = {"ship": "bold green", "warn": "bold yellow", "block": "bold red"}[report.verdict]
        screen.print(Text(VERDICTS[report.verdict], style=style))
        if place is not None:
            screen.print(Text(f"Report {len(past) + 1} in {place}"), soft_wrap=True)
    raise typer.Exit(int(report.verdict == "block"))


def _earlier(past: Sequence[Mapping[str, Any]], against: int | None) -> Mapping[str, Any] | None:
    """Returns the report to compare with, None for a first one."""
    if against is not None and against > len(past):
        raise UsageError(f"--against {against}: the history has {len(past)} reports")
    return past[(against or len(past)) - 1] if past else None


def _table(report: GateReport) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("", "attribute", "requirement"):
        table.add_column(name)
    for name in ("score", "bound", "level"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("severity")
    table.add_column("")
    for result in report.results:
        asked = result.requirement
        style = STYLES[result.status] if result.blocks or result.status == "pass" else "yellow"
        score = "–" if result.score is None else f"{result.score.estimate:.4g}"
        bound = "–" if result.bound is None else f"{result.bound:.4g}"
        note = result.reason if result.status == "unknown" else ""
        threshold = f"{asked.metric} {asked.op} {asked.threshold:g}"
        level = f"{result.level:.2%}"
        cells = (Text(asked.attribute), Text(threshold), score, bound, level, asked.severity, Text(note))
        table.add_row(Text(result.status, style=style), *cells)
    return table


def _changes(changes: Sequence[Mapping[str, Any]] | None, number: int) -> list[str]:
    if changes is None:
        return []
    if not changes:
        return [f"Nothing has changed since report {number}."]

    def side(state: Mapping[str, Any]) -> str:
        if state["status"] is None:
            return "not asked"
        return state["status"] + ("" if state["estimate"] is None else f" ({state['estimate']:.4g})")

    return [f"Since report {number}: {c['requirement']}: {side(c['before'])} -> {side(c['after'])}" for c in changes]
