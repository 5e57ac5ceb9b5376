"""polopt convert."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polopt.cli import wording
from polopt.cli.command_group import UsageError
from polopt.display.format import percent

if TYPE_CHECKING:
    from polopt.training import conversion

Folder = Annotated[Path, typer.Option("--to", metavar="FOLDER", help="Where to write; new, or empty.")]


def convert(
    source: Annotated[str, typer.Argument(help="A run, an adapter in PEFT's format, or a model (folder or hub name).")],
    to: Folder,
    base: Annotated[
        str | None, typer.Option("--base", metavar="MODEL", help="The base of an adapter; the adapter's own if none.")
    ] = None,
    step: Annotated[
        str | None, typer.Option("--step", metavar="STEP", help="Which checkpoint of a run: its step, best or last.")
    ] = None,
    adapter: Annotated[bool, typer.Option("--adapter", help="Of a run: its adapter, not the merged model.")] = False,
    rank: Annotated[
        int | None, typer.Option("--rank", min=1, help="Of an adapter made of two models; the least exact one if none.")
    ] = None,
) -> None:
    """Convert a policy: a run's checkpoint as a model or adapter; an adapter and its base as one model; the
    difference of a model and --base as an adapter."""
    from polopt.training import conversion

    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise UsageError(f"{to} is not empty: name another folder")
    place, screen = Path(source), wording.screen()
    is_run, is_adapter = (place / "recipe.yaml").is_file(), (place / "adapter_config.json").is_file()
    if not is_run and (step is not None or adapter):
        raise UsageError(f"--step and --adapter are of a run, and {source} is none: it has no recipe.yaml")
    if is_run:
        if base is not None or rank is not None:
            raise UsageError(f"--base and --rank are of a model, and {source} is a run: give {place / 'policy'}")
        conversion.write_checkpoint(place, to, wording.checkpoint(step or "last"), adapter=adapter)
    elif is_adapter:
        if rank is not None:
            raise UsageError(f"--rank is of an adapter to be made, and {source} is one already")
        conversion.merge(place, base, to)
    elif base is None:
        raise UsageError(
            f"{source} is neither a run nor an adapter: give --base MODEL to make an adapter of the difference"
        )
    else:
        _describe(conversion.split(source, base, to, rank=rank))
    screen.print(str(to), soft_wrap=True)


def _describe(found: conversion.Difference) -> None:
    """Prints the approximation error of an adapter made from a difference of models."""
    screen, errors = wording.screen(), found.found.error
    worst = max(errors, key=lambda name: errors[name])
    screen.print(f"rank {found.found.rank}, {len(errors)} maps")
    for name, error in sorted(errors.items(), key=lambda pair: -pair[1])[:8]:
        if error > 1e-6:
            screen.print(f"  {name}: {percent(error)} of the difference is left out")
    if errors[worst] <= 1e-6:
        screen.print("  exact to rounding")
    if found.found.left:
        names = ", ".join(found.found.left[:4]) + (", ..." if len(found.found.left) > 4 else "")
        screen.print(f"  not in the adapter, as they are no linear maps inside the model: {names}")
    screen.print(f"  KL to the model, on a few texts: {found.kl:.2g} nats per token, {found.worst_kl:.2g} at most")
