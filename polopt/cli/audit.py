"""polopt audit, and polopt audit preferences."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from polopt.cli import audit_transitions, wording
from polopt.cli.command_group import CommandGroup, UsageError, checked

if TYPE_CHECKING:
    from polopt.metrics import Interval
    from polopt.training.auditing import FileAudit

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, help="Audit data before anything is trained on it.")

# Lines of one kind that are shown; --json has all.
SHOWN = 8


app.command()(audit_transitions.demos)
app.command()(audit_transitions.logs)


@app.command()
def preferences(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Pairs as TRL reads them: prompt, chosen, rejected.")],
    heldout: Annotated[
        Path | None, typer.Option("--heldout", metavar="FILE", help="Pairs of the evaluation, for leaks.")
    ] = None,
    position: Annotated[
        str | None,
        typer.Option("--position", metavar="FIELD", help="True where the preferred answer was shown first."),
    ] = None,
    annotator: Annotated[
        str | None,
        typer.Option("--annotator", metavar="FIELD", help="The name of the row's annotator: agreement and discretion."),
    ] = None,
    objective: Annotated[
        str,
        typer.Option(
            "--objective", metavar="METHOD", help="Whose turned pairs to count.", autocompletion=wording.complete_method
        ),
    ] = "dpo",
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of the objective; repeatable.")
    ] = None,
    beta: Annotated[float | None, typer.Option("--beta", help="The same as --set beta=.")] = None,
    target_loss: Annotated[
        float, typer.Option("--target-loss", help="The loss of a pair at which training is expected to end.")
    ] = 0.5,
    model: Annotated[
        Path | None,
        typer.Option("--model", metavar="FOLDER", help="The reference, to compute its log-probabilities of the pairs."),
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the audit as one page.")] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Audit preference pairs: copies and near-copies, conflicts, circles, leaks, length and position bias, label noise,
    annotators, and, with the reference's log-probabilities, the pairs that an objective leaves wrong."""
    from polopt.training.auditing import audit_file

    settings = wording.settings(changes or [])
    if beta is not None and settings.setdefault("beta", beta) != beta:
        raise UsageError(f"--beta {beta:g} and --set beta={settings['beta']} differ; leave one of the two")
    screen = wording.screen(stderr=as_json)
    with checked(), screen.status(f"Auditing {file} …") if screen.is_terminal else nullcontext():
        audit = audit_file(
            file,
            heldout,
            position=position,
            annotator=annotator,
            objective=objective,
            settings=settings,
            target_loss=target_loss,
            model=model,
        )
    if html is not None:
        _write_page(audit, file, html)
    if as_json:
        typer.echo(json.dumps({"file": str(file), **audit.record()}, indent=1, ensure_ascii=False))
        return
    _show(audit, screen)
    if html is not None:
        screen.print(f"Report  {html}", soft_wrap=True)


def _write_page(audit: FileAudit, file: Path, page: Path) -> None:
    from polopt.report import write_audit

    with checked():
        write_audit(audit, file, page)


def _show(audit: FileAudit, screen: Console) -> None:
    screen.print(_table(audit))
    for line, problem in list(audit.malformed.items())[:SHOWN]:
        screen.print(Text(f"Line {line}: {problem}", style="red"), soft_wrap=True)
    for caution in audit.cautions:
        screen.print(Text(f"Caution: {caution}.", style="yellow"), soft_wrap=True)


def _table(audit: FileAudit) -> Table:
    found, table = audit.found, Table.grid(padding=(0, 2))
    table.add_row("pairs", str(found.rows), f"{found.prompts} different prompts")
    if audit.malformed:
        table.add_row("malformed rows", str(len(audit.malformed)), _lines([tuple(audit.malformed)]))
    for name, groups in (
        ("duplicates", found.duplicates),
        ("near-duplicates", found.near_duplicates),
        ("opposite labels", found.conflicts),
        ("circles", found.cycles),
    ):
        table.add_row(name, str(len(groups)), _lines(groups))
    for name, places in (("held-out prompts", found.leaks), ("nearly held-out", found.near_leaks)):
        table.add_row(name, str(len(places)), _lines([places] if places else []))
    for name, interval in (
        ("longer answer preferred", found.longer_chosen),
        ("first answer preferred", found.first_chosen),
        ("label noise", found.label_noise),
    ):
        table.add_row(name, *_rate(interval))
    _annotators(table, audit)
    if audit.flips is not None:
        flips, name = audit.flips, audit.flips.criterion.method
        right = flips.measured.intervals["reference_accuracy"]
        table.add_row("reference ranks right", *_rate(right))
        left = flips.left_wrong
        share = f"{len(left) / len(flips.lines):.1%}"
        where = f": {_lines([left])}" if left else ""
        table.add_row(f"{name} leaves wrong", share, f"of all pairs, at the target loss{where}")
    return table


def _annotators(table: Table, audit: FileAudit) -> None:
    """Adds the rows on annotators and principles, where these are known."""
    if audit.agreement is not None:
        agreement = audit.agreement
        table.add_row("annotators", str(len(agreement.names)), f"{agreement.shared} pairs labelled by two or more")
        table.add_row("Krippendorff's alpha", *_number(agreement.alpha))
        for (one, other), kappa in list(agreement.kappa.items())[:SHOWN]:
            table.add_row(Text(f"Cohen's kappa of {one} and {other}"), *_number(kappa))
        for name, interval in list(agreement.with_others.items())[:SHOWN]:
            table.add_row(Text(f"{name} agrees with others"), *_rate(interval))
    if audit.discretion is not None:
        for name in ("consensus", "conflict"):
            table.add_row(f"principles in {name}", *_rate(audit.discretion.intervals[name]))
        against = "arbitrariness of "
        for name, interval in audit.discretion.intervals.items():
            if name.startswith(against):
                table.add_row(Text(f"{name.removeprefix(against)} against consensus"), *_rate(interval))


def _number(interval: Interval | None) -> tuple[str, str]:
    if interval is None:
        return "-", "not known from these rows"
    return f"{interval.estimate:.2f}", f"[{interval.low:.2f}, {interval.high:.2f}] ({interval.level:.0%})"


def _rate(interval: Interval | None) -> tuple[str, str]:
    if interval is None:
        return "-", "not known from these rows"
    return f"{interval.estimate:.1%}", f"[{interval.low:.1%}, {interval.high:.1%}] ({interval.level:.0%})"


def _lines(groups: list[tuple[int, ...]] | tuple[tuple[int, ...], ...]) -> str:
    """Formats groups of lines, the first of them."""
    if not groups:
        return ""
    shown = [
        "lines " + ", ".join(map(str, group[:SHOWN])) + (", ..." if len(group) > SHOWN else "") for group in groups
    ]
    return "; ".join(shown[:SHOWN]) + ("; ..." if len(shown) > SHOWN else "")
