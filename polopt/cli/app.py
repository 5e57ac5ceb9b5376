"""The commands of the command line.

Importing them imports no torch: each imports its dependencies when it runs, so that help is fast.
"""

from __future__ import annotations

from typing import Annotated

import typer

from polopt.cli import (
    audit,
    bridges,
    catalogue,
    chat,
    check,
    compare,
    convert,
    evaluate,
    export,
    fit,
    gate,
    measure,
    parts,
    plan,
    recipes,
    solve,
    train,
)
from polopt.cli.command_group import CommandGroup

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Policy optimisation as small parts: every published method a sentence, every claim a program.",
)


def _version(requested: bool) -> None:
    if requested:
        import polopt

        typer.echo(f"polopt {polopt.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


TRAINING, METHODS = "Training", "Methods"

app.command(rich_help_panel=TRAINING)(train.train)
app.command(rich_help_panel=TRAINING)(solve.solve)
app.command(rich_help_panel=TRAINING)(fit.fit)
app.command(rich_help_panel=TRAINING)(plan.plan)
app.command(rich_help_panel=TRAINING)(evaluate.evaluate)
app.command(rich_help_panel=TRAINING)(gate.gate)
app.command(rich_help_panel=TRAINING)(chat.chat)
app.command(rich_help_panel=TRAINING)(compare.compare)
app.command(rich_help_panel=TRAINING)(train.report)
app.command(rich_help_panel=TRAINING)(convert.convert)
app.command(rich_help_panel=TRAINING)(export.export)
app.command(rich_help_panel=TRAINING)(recipes.recipes)
app.command(rich_help_panel=METHODS)(catalogue.methods)
app.command(rich_help_panel=METHODS)(parts.parts)
app.command(rich_help_panel=METHODS)(catalogue.show)
app.command(rich_help_panel=METHODS)(catalogue.diff)
app.command(rich_help_panel=METHODS)(catalogue.cite)
app.command(rich_help_panel=METHODS)(catalogue.claims)
app.command(rich_help_panel=METHODS)(measure.measure)
app.add_typer(audit.app, name="audit", rich_help_panel=METHODS)
app.command(rich_help_panel=METHODS)(bridges.bridges)
app.command(rich_help_panel=METHODS)(check.check)
