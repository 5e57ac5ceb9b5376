"""polopt parts: what recipes are composed of."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.table import Table

from polopt import tags
from polopt.cli import wording
from polopt.cli.command_group import UsageError, checked
from polopt.cli.options import JsonOption


def parts(
    like: Annotated[
        str | None, typer.Option("--filter", metavar="TEXT", help="Words in name or summary, in any order.")
    ] = None,
    room: Annotated[str | None, typer.Option("--room", metavar="NAME", help="As credit or objectives.")] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="AXIS=TAG", help="As reward_source=model; repeatable: parts with all of them."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the parts that recipes and methods are composed of, and the policies, with what each does."""
    from polopt import part_list

    with checked():
        wanted = {tags.parsed_tag(text) for text in tag or []}
    listed = part_list.entries()
    rooms = sorted({part.room for part in listed})
    if room is not None and room not in rooms:
        raise UsageError(f"--room {room}: give one of {', '.join(rooms)}")
    words = (like or "").lower().split()
    found = [
        part
        for part in listed
        if room in (None, part.room)
        and wanted <= set(part.tags)
        and all(word in f"{part.name} {part.summary}".lower() for word in words)
    ]
    if as_json:
        rows = [{**part._asdict(), "tags": [f"{axis}={name}" for axis, name in part.tags]} for part in found]
        typer.echo(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    screen = wording.screen()
    if not screen.is_terminal:
        width = max((len(part.name) for part in found), default=0)
        for part in found:
            typer.echo(f"{part.name.ljust(width)}  {part.summary}")
        return
    table = Table(box=None, pad_edge=False, expand=True)
    table.add_column("part", style="bold", overflow="fold", ratio=2)
    table.add_column("what it does", ratio=5)
    table.add_column("tags", ratio=2)
    for part in found:
        table.add_row(part.name, part.summary, ", ".join(name for _, name in part.tags))
    screen.print(table)
    screen.print(f"{len(found)} of {len(listed)} parts; `polopt methods --tag` has the methods", style="dim")
