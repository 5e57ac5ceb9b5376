"""polopt audit demos, polopt audit logs."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from polopt.cli import wording
from polopt.cli.command_group import checked
from polopt.cli.measure import named_columns
from polopt.cli.options import JsonOption

if TYPE_CHECKING:
    from polopt.training.transition_audit import Kind, TransitionAudit

# Lines of one kind that are shown; --json has all.
SHOWN = 8

ColumnOption = Annotated[
    list[str] | None,
    typer.Option("--column", metavar="NAME=COLUMN", help="The file's own name of a column; repeatable."),
]
HtmlOption = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the audit as one page.")]


def demos(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A row a decision: episode, step, observation, action.")],
    column: ColumnOption = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of il-data-quality; repeatable."),
    ] = None,
    html: HtmlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Audit demonstrations: whether actions agree where states are alike, how many pass by a state, copies and
    near-copies, and rows and episodes that do not fit."""
    _run("demos", file, column, changes, html, as_json)


def logs(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A row a decision: episode, step, state, action, reward, done."),
    ],
    column: ColumnOption = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of dataset-perspective; repeatable."),
    ] = None,
    html: HtmlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Audit logged transitions: returns, coverage of states and actions, rewards, copies and near-copies, rows and
    episodes that do not fit, and, with both policies' probabilities, what the log supports."""
    _run("logs", file, column, changes, html, as_json)


def _run(
    kind: Kind, file: Path, column: list[str] | None, changes: list[str] | None, html: Path | None, as_json: bool
) -> None:
    from polopt.training.transition_audit import audit_transitions

    screen = wording.screen(stderr=as_json)
    with checked(), screen.status(f"Auditing {file} …") if screen.is_terminal else nullcontext():
        audit = audit_transitions(file, kind, named_columns(column or []), wording.settings(changes or []))
        if html is not None:
            from polopt.report import write_transition_audit

            write_transition_audit(audit, file, html)
    if as_json:
        typer.echo(json.dumps({"file": str(file), **audit.record()}, indent=1, ensure_ascii=False))
        return
    _show(audit, screen)
    if html is not None:
        screen.print(f"Report  {html}", soft_wrap=True)


def _show(audit: TransitionAudit, screen: Console) -> None:
    from polopt.report.transition_page import OVERLAP, facts, numbers

    table = Table.grid(padding=(0, 2))
    for name, count in facts(audit):
        table.add_row(name, count, "")
    for name, value, ends in numbers(audit.measured):
        table.add_row(Text(name), value, ends)
    for name, value, ends in numbers(audit.overlap):
        if name in OVERLAP:
            table.add_row(OVERLAP[name], value, ends)
    screen.print(table)
    for name, groups in (("Identical", audit.duplicates), ("Nearly identical", audit.near_duplicates)):
        for group in groups[:SHOWN]:
            more = ", ..." if len(group) > SHOWN else ""
            screen.print(Text(f"{name}: {', '.join(group[:SHOWN])}{more}"), soft_wrap=True)
    for line, problem in list(audit.malformed.items())[:SHOWN]:
        screen.print(Text(f"Row {line}: {problem}", style="red"), soft_wrap=True)
    for problem in list(audit.broken.values())[:SHOWN]:
        screen.print(Text(f"{problem[:1].upper()}{problem[1:]}", style="red"), soft_wrap=True)
    for caution in audit.cautions:
        screen.print(Text(f"Caution: {caution}.", style="yellow"), soft_wrap=True)
