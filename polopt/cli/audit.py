"""polopt audit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from polopt.cli import wording
from polopt.cli.command_group import CommandGroup, checked

if TYPE_CHECKING:
    from polopt.metrics import Interval
    from polopt.training.auditing import FileAudit

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, help="Audit data before anything is trained on it.")

# Lines of one kind that are shown; --json has all.
SHOWN = 8


@app.callback()
def _audit() -> None:
    pass


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
    beta: Annotated[float, typer.Option("--beta", help="Of DPO, for the pairs that it can turn.")] = 0.1,
    target_loss: Annotated[
        float, typer.Option("--target-loss", help="The loss of a pair at which training is expected to end.")
    ] = 0.5,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Audit preference pairs: copies and near-copies, conflicts, circles, leaks, length and position bias, label noise,
    and, with the reference's log-probabilities, the pairs that DPO leaves wrong."""
    from polopt.training.auditing import audit_file

    with checked():
        audit = audit_file(file, heldout, position=position, beta=beta, target_loss=target_loss)
    if as_json:
        typer.echo(json.dumps({"file": str(file), **audit.record()}, indent=1, ensure_ascii=False))
        return
    screen = wording.screen()
    screen.print(_table(audit))
    for line, problem in list(audit.malformed.items())[:SHOWN]:
        screen.print(Text(f"Line {line}: {problem}", style="red"), soft_wrap=True)
    for caution in audit.found.cautions:
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
    if audit.ranking is not None:
        values = audit.ranking.values
        table.add_row("reference ranks right", *_rate(audit.ranking.intervals["reference_accuracy"]))
        table.add_row("DPO leaves wrong", f"{1 - values['flippable']:.1%}", "of all pairs, at the target loss")
    return table


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
