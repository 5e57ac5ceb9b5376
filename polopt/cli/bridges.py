"""polopt bridges: which methods run in other trainers, and why others do not."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from polopt import catalogue, index
from polopt.cli import wording
from polopt.cli.catalogue import Slugs
from polopt.cli.command_group import checked


def bridges(
    slugs: Slugs = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="The table as docs/bridges.md has it.")] = False,
) -> None:
    """List which methods run in TRL, verl, SkyRL, prime-rl and slime; for methods given by name, also why not."""
    from polopt.bridges import table

    if markdown:
        typer.echo(table.markdown())
        return
    with checked():
        found = table.cells([catalogue.find(slug).slug for slug in slugs] if slugs else index.slugs("algorithm"))
    screen, grid = wording.screen(), Table(box=None, pad_edge=False)
    for name in ("method", *(host.name for host in table.HOSTS)):
        grid.add_column(name, no_wrap=True)
    for slug, row in found.items():
        grid.add_row(slug, *table.shown(row))
    screen.print(grid)
    for slug in found if slugs else ():
        for name, why in table.reasons(catalogue.method(slug)).items():
            for reason in why:
                screen.print(f"{slug}, {name}: {reason}", soft_wrap=True)
