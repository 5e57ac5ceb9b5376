"""polopt methods, show, diff, cite, claims."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from polopt import catalogue
from polopt.algorithm import Algorithm
from polopt.cli import text
from polopt.cli.door import Refused, checked
from polopt.cli.train import sentence
from polopt.method import Method
from polopt.part import Part, build
from polopt.part import diff as differences
from polopt.training.spread import spread_over
from polopt.yaml_data import read_yaml_file

Slugs = Annotated[list[str] | None, typer.Argument(metavar="[METHOD]...", help="Names; all methods if none.")]

# Columns below which a table of methods would be a column of words.
NARROW = 100


def methods(as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
    """List the methods: what each changes, its paper, how sure its formula is."""
    found = [catalogue.find(slug) for slug in catalogue.slugs()]
    if as_json:
        typer.echo(json.dumps([_row(m) for m in found], indent=1, ensure_ascii=False))
        return
    screen = text.screen()
    if screen.width >= NARROW:
        screen.print(_methods_table(found))
        return
    for m in found:
        claims = "1 claim" if len(m.claims) == 1 else f"{len(m.claims)} claims"
        screen.print(Text.assemble((m.slug, "bold"), (f"  {_source(m)}, {m.tier}, {claims}", "dim")))
        screen.print(Padding(Text(m.changes), (0, 0, 0, 2)))


def _methods_table(found: list[Method[Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("method", style="bold", no_wrap=True)
    table.add_column("what it changes", ratio=1)
    table.add_column("paper", no_wrap=True)
    table.add_column("tier", no_wrap=True)
    table.add_column("claims", justify="right")
    for m in found:
        table.add_row(m.slug, m.changes, _source(m), m.tier, str(len(m.claims)))
    return table


def _row(m: Method[Any]) -> dict[str, Any]:
    return {
        "slug": m.slug,
        "changes": m.changes,
        "tier": m.tier,
        "paper": dataclasses.asdict(m.paper),
        "claim": [claim.statement for claim in m.claims],
    }


def _source(m: Method[Any]) -> str:
    return m.paper.arxiv or f"{m.paper.authors.split(',')[0]} {m.paper.year}"


def show(
    slug: Annotated[str, typer.Argument(metavar="METHOD")],
    as_yaml: Annotated[bool, typer.Option("--yaml", help="The algorithm as data, every default included.")] = False,
) -> None:
    """Show a method: its formula, settings, sentence of parts, paper and claims."""
    with checked():
        m = catalogue.find(slug)
    screen = text.screen()
    if as_yaml:
        typer.echo(m().to_yaml(), nl=False)
        return
    screen.print(Text.assemble((m.slug, "bold"), f"  {m.tier}"))
    screen.print(m.changes)
    screen.print(Padding(Text(text.paragraphs(m.doc)), (1, 0, 1, 2)))
    if m.settings():
        screen.print("Settings", style="bold")
        screen.print(_settings(m))
        screen.print()
    screen.print("The sentence", style="bold")
    screen.print(sentence(m()))
    where = f"arXiv {m.paper.arxiv}" if m.paper.arxiv else m.paper.venue
    screen.print("\nPaper", style="bold")
    screen.print(Padding(Text(f"{m.paper.authors} ({m.paper.year}): {m.paper.title}. {where}"), (0, 0, 0, 2)))
    if m.claims:
        screen.print("\nClaims", style="bold")
        for claim in m.claims:
            screen.print(Padding(Text(f"{claim.name}: {claim.statement}"), (0, 0, 0, 2)))


def _settings(m: Method[Any]) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, default in m.settings().items():
        required = default is inspect.Parameter.empty
        table.add_row(f"  {name}", "must be given" if required else repr(default))
    return table


def diff(left: Annotated[str, typer.Argument(metavar="A")], right: Annotated[str, typer.Argument(metavar="B")]) -> None:
    """Say exactly what differs: two methods, YAML files (of algorithms or recipes), or file.py:function."""
    with checked():
        found = list(_differences(_side(left), _side(right)))
    screen = text.screen()
    if not found:
        screen.print(f"{left} and {right} are the same.")
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("where", no_wrap=True, style="bold")
    table.add_column(left, overflow="fold")
    table.add_column(right, overflow="fold")
    for path, a, b in found:
        table.add_row(path or "all of it", Text(a), Text(b))
    screen.print(table)


def _side(name: str) -> Algorithm | dict[str, Any]:
    """What a name stands for: an algorithm, or a recipe's settings by dotted path."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise Refused(f"{name} does not exist; give a YAML file, a method's name, or file.py:function")
        data = read_yaml_file(path)
        if isinstance(data, dict) and "stages" in data:
            return dict(_flat("", data))
        found = build(data)
    else:
        found = catalogue.own_method(name)() if ":" in name else catalogue.method(name)
    if not isinstance(found, Algorithm):
        raise Refused(f"{name} gives {found!r:.60}, expected an Algorithm")
    return found


def _differences(left: Algorithm | dict[str, Any], right: Algorithm | dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    if isinstance(left, Part) and isinstance(right, Part):
        for path, a, b in differences(left, right):
            yield path, repr(a), repr(b)
    elif isinstance(left, dict) and isinstance(right, dict):
        for key in dict.fromkeys([*left, *right]):
            a, b = (repr(side[key]) if key in side else "–" for side in (left, right))
            if a != b:
                yield key, a, b
    else:
        raise Refused("a recipe and an algorithm cannot be compared: give two recipes, or two methods")


def _flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(f"{path}.{key}" if path else str(key), inner)
    else:
        yield path, value


def cite(slugs: Annotated[list[str], typer.Argument(metavar="METHOD...")]) -> None:
    """Print the BibTeX of the methods' papers."""
    with checked():
        typer.echo(catalogue.cite(slugs))


def claims(
    slugs: Slugs = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
    fast: Annotated[bool, typer.Option("--fast", help="Only those of a few seconds.")] = False,
    cluster: text.ClusterOption = None,
) -> None:
    """Measure what the papers claim. Ends with code 1 if a claim fails."""
    with checked():
        planned = catalogue.planned_claims(slugs or catalogue.slugs(), "fast" if fast else None)
    rows: list[catalogue.ClaimResult] = []
    screen = text.screen(stderr=as_json)
    live = Live(console=screen, refresh_per_second=4, transient=True) if screen.is_terminal else None
    with spread_over(cluster) as spread, live or contextlib.nullcontext():
        if live:
            live.update(_claims_page(rows, planned))
        for row in spread(catalogue.run_claim, planned):
            rows.append(row)
            screen.print(_claim_line(row))
            if live:
                live.update(_claims_page(rows, planned))
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(row) for row in rows], indent=1, ensure_ascii=False))
    failing = [f"{row.slug} {row.name}" for row in rows if not row.holds]
    seconds = text.duration(sum(row.seconds for row in rows))
    verdict = f"{len(rows) - len(failing)} of {len(rows)} claims hold, {seconds}."
    screen.print(verdict + (f" Failing: {', '.join(failing)}." if failing else ""))
    raise typer.Exit(1 if failing else 0)


def _claims_page(rows: list[catalogue.ClaimResult], planned: list[tuple[str, str]]) -> Text:
    if len(rows) >= len(planned):
        return Text("")
    slug, name = planned[len(rows)]
    return Text(f"{len(rows) + 1} of {len(planned)}: measuring {slug} {name} …", style="dim")


def _claim_line(row: catalogue.ClaimResult) -> Padding:
    """One claim: verdict and statement, then what was measured, the criterion and the baseline."""
    mark = ("holds", "green") if row.holds else ("fails", "bold red")
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    head = Text.assemble((f"{row.slug} ", "bold"), f"{row.name}  ", mark, (f"  {row.seconds:.1f} s", "dim"))
    measured = ", ".join(f"{name} {value:.4g}" for name, value in row.measured.items())
    for name, value in (
        ("claim", row.statement),
        ("measured", measured),
        ("criterion", row.criterion),
        ("baseline", row.baseline),
        ("note", row.note),
    ):
        if value:
            table.add_row(f"  {name}", Text(value))
    return Padding(Group(head, table), (0, 0, 1, 0))
