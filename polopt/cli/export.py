"""polopt export: a recipe, or a run, for another trainer."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from polopt.cli import wording
from polopt.cli.command_group import UsageError, checked
from polopt.cli.options import MethodOption, SeedOption, SetOption
from polopt.cli.train import loaded, method_of


def export(
    recipe: Annotated[
        str | None, typer.Argument(metavar="[RECIPE|RUN]", help="A recipe; or a run's folder, whose policy begins.")
    ] = None,
    to: Annotated[str, typer.Option("--to", metavar="TRAINER", help="trl or verl.")] = "trl",
    folder: Annotated[
        Path | None, typer.Option("--folder", help="A new folder; exports/TRAINER-METHOD if none.")
    ] = None,
    method: MethodOption = None,
    seed: SeedOption = None,
    changes: SetOption = None,
) -> None:
    """Write a recipe's last stage as a script for TRL, or as YAML and a command for verl."""
    from polopt.bridges.export import TRAINERS
    from polopt.bridges.export import export as write
    from polopt.training.language_recipe import LanguageRecipe
    from polopt.training.origin import at_base
    from polopt.training.run import Run

    if to not in TRAINERS:
        raise UsageError(f"--to {to}: give {' or '.join(TRAINERS)}")
    run = Run(Path(recipe).absolute()) if recipe is not None and Run.exists(Path(recipe)) else None
    current = Path.cwd()
    with nullcontext(current) if run is None else at_base(run) as base:
        found = loaded(recipe if run is None else str(run.recipe), method, seed, changes)
        place = folder or Path("exports") / f"{to}-{method_of(found)}"
        with checked():
            done = write(LanguageRecipe.require(found), to, place if base == current else current / place, run)
    screen = wording.screen()
    for note in done.notes:
        screen.print(f"- {note}", soft_wrap=True)
    screen.print(f"Run it: {done.command}", soft_wrap=True)
