"""Options and arguments shared by several commands."""

from __future__ import annotations

from typing import Annotated

import typer

from polopt.cli import wording

RecipeArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[RECIPE]",
        help="A YAML file or one of `polopt recipes`; the laptop's if none.",
        autocompletion=wording.complete_recipe,
    ),
]
MethodOption = Annotated[
    str | None,
    typer.Option(
        "--method",
        metavar="NAME",
        help="Of the last stage: gspo, or '{name: rloo, kl: 0}'.",
        autocompletion=wording.complete_method,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, as in --set stages.rl.steps=50; repeatable."),
]
FamilyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--family",
        metavar="KEY=VALUES",
        help="Compare in each of several worlds, as in --family tasks.size=4,8,16; repeatable: every combination.",
    ),
]
SeedOption = Annotated[int | None, typer.Option("--seed")]
CheckpointOption = Annotated[
    str | None, typer.Option("--checkpoint", metavar="STEP", help="Of a run: its step, best or last.")
]
JsonOption = Annotated[bool, typer.Option("--json")]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="Spread over a Ray cluster: HOST:PORT, or auto for the one of this machine.",
    ),
]
RolloutClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="Draw the rollouts on a Ray cluster: HOST:PORT, auto for the one of this machine, or local.",
    ),
]
