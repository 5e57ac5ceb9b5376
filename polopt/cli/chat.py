"""polopt chat."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polopt.cli import wording
from polopt.cli.command_group import checked
from polopt.cli.options import CheckpointOption
from polopt.display.printable import printable

if TYPE_CHECKING:
    from rich.console import Console

PROMPT = "> "


def chat(
    run: Annotated[Path, typer.Argument(help="A run, or a folder with a model.")],
    questions: Annotated[
        list[str] | None,
        typer.Argument(help="Questions; without any, each line that is typed is one, until an empty one."),
    ] = None,
    base: Annotated[
        bool, typer.Option("--base/--no-base", help="Also answer with the model that the run began with.")
    ] = True,
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="Most tokens of an answer.")] = 128,
    temperature: Annotated[
        float, typer.Option("--temperature", min=0, help="Of the answers; 0 takes the likeliest token.")
    ] = 0.0,
    checkpoint: CheckpointOption = None,
    seed: Annotated[int, typer.Option("--seed")] = 0,
) -> None:
    """Talk with a run's policy, side by side with the model that it was trained from."""
    from rich.table import Table
    from rich.text import Text

    from polopt.support import Support
    from polopt.training.chat import conversations

    with checked():
        support = Support(top_k=1) if temperature == 0 else Support(temperature=temperature)
    screen = wording.screen()
    with screen.status(f"Loading {run} …") if screen.is_terminal else checked():
        which = None if checkpoint is None else wording.checkpoint(checkpoint)
        talks = conversations(run, base=base, checkpoint=which, support=support, limit=tokens, seed=seed)
    for question in questions or _typed(screen):
        answers = {name: printable(talk.ask(question)).strip() for name, talk in talks.items()}
        table = Table(box=None, pad_edge=False, expand=screen.is_terminal, padding=(0, 3, 1, 0))
        for name in answers:
            table.add_column(name, style=None if name != "base" else "dim", ratio=1, overflow="fold")
        table.add_row(*map(Text, answers.values()))
        if questions or not screen.is_terminal:
            screen.print(Text(PROMPT + question, style="bold"))
        screen.print(table)


def _typed(screen: Console) -> Iterator[str]:
    """Yields lines of standard input, up to an empty one or the end."""
    if screen.is_terminal:
        screen.print("An empty line ends the conversation.", style="dim")
    while True:
        try:
            line = screen.input(PROMPT) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
        except EOFError:
            return
        if not line.strip():
            return
        yield line
