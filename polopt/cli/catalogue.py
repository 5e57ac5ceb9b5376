"""polopt methods, show, diff, cite, claims."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from polopt import catalogue, evidence, index, tags
from polopt.claim import Cost
from polopt.cli import claims_page, wording
from polopt.cli.command_group import UsageError, checked
from polopt.cli.options import ClusterOption, JsonOption
from polopt.display import format
from polopt.index import Entry
from polopt.method import KINDS, ROOMS, TIERS, usage_of, with_article

if TYPE_CHECKING:
    from polopt.part import Part

Slugs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[METHOD]...", help="Names; all methods if none.", autocompletion=wording.complete_method),
]
Slug = Annotated[str, typer.Argument(metavar="METHOD", autocompletion=wording.complete_method)]

# Width in columns below which methods are listed instead of tabulated.
NARROW = 100


def methods(
    like: Annotated[
        str | None,
        typer.Option("--filter", metavar="TEXT", help="Words in name, room, kind, tier, title, or what it changes."),
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="NAME", help=f"What it builds: {', '.join(KINDS)}.")
    ] = None,
    room: Annotated[str | None, typer.Option("--room", metavar="NAME", help=f"{', '.join(ROOMS)}.")] = None,
    tier: Annotated[str | None, typer.Option("--tier", metavar="NAME", help=f"{', '.join(TIERS)}.")] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="AXIS=TAG", help="As update_rule=dpo; repeatable: methods with all of them."),
    ] = None,
    by_tag: Annotated[
        bool, typer.Option("--by-tag", help="Two surveys' tags, and how many of these methods have each.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the methods: what each changes, its paper, how sure its formula is. One line each in a pipe."""
    with checked():
        wanted = {tags.parsed_tag(text) for text in tag or []}
    found = index.entries()
    _known("--room", room, list(ROOMS))
    _known("--tier", tier, list(TIERS))
    _known("--kind", kind, list(KINDS))
    found = [
        m
        for m in found
        if room in (None, m.room)
        and kind in (None, m.kind)
        and tier in (None, m.tier)
        and m.matches(like or "")
        and wanted <= set(m.tags)
    ]
    if by_tag:
        _show_tags(found, as_json)
        return
    if as_json:
        typer.echo(json.dumps([_row(m) for m in found], indent=1, ensure_ascii=False))
        return
    screen = wording.screen()
    if screen.is_terminal:
        show_methods(screen, found)
    else:
        for line in method_lines(found):
            typer.echo(line)


def _show_tags(found: Sequence[Entry], as_json: bool) -> None:
    """Prints how many methods have each tag, empty cells included."""
    cells = tags.cells({m.slug: m.tags for m in found})
    if as_json:
        rows = [{"axis": axis, "tag": tag, "methods": names} for (axis, tag), names in cells.items()]
        typer.echo(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    table = Table.grid(padding=(0, 2))
    before = ""
    for (axis, tag), names in cells.items():
        table.add_row("" if axis == before else axis, tag, str(len(names) or "–"), tags.TAGS[axis][tag])
        before = axis
    wording.screen().print(table)


def _known(option: str, value: str | None, known: Sequence[str]) -> None:
    if value is not None and value not in known:
        raise UsageError(f"{option} {value}: give one of {', '.join(known)}")


def method_lines(found: Sequence[Entry]) -> Iterator[str]:
    """Yields one line for each method, in columns, without wrapping: for grep and similar tools."""
    rows = [(m.slug, m.room, m.tier, _source(m)) for m in found]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row, m in zip(rows, found, strict=True):
        yield "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=True)), m.changes])


def show_methods(screen: Console, found: Sequence[Entry]) -> None:
    """Prints the methods over the whole width, and the meaning of the tiers."""
    if screen.width >= NARROW:
        screen.print(_methods_table(found))
    else:
        for m in found:
            screen.print(Text.assemble((m.slug, "bold"), (f"  {_source(m)}, {m.room}, {m.tier}", "dim")))
            screen.print(Padding(Text(m.changes), (0, 0, 0, 2)))
    screen.print()
    for name, meaning in TIERS.items():
        screen.print(f"{name}: {meaning}", style="dim")
    screen.print("headline: claims of the effect that the paper is published for; other: all others", style="dim")
    screen.print(f"{len(found)} of {len(catalogue.slugs())} methods; `polopt show METHOD` has the formula", style="dim")


def _methods_table(found: Sequence[Entry]) -> Table:
    table = Table(box=None, pad_edge=False, expand=True)
    table.add_column("method", style="bold", no_wrap=True)
    table.add_column("what it changes", ratio=1)
    table.add_column("paper", no_wrap=True)
    table.add_column("room", no_wrap=True)
    table.add_column("tier", no_wrap=True)
    table.add_column("headline", justify="right")
    table.add_column("other", justify="right")
    for m in found:
        headline = sum(kind == "headline" for _, kind, _ in m.claims)
        table.add_row(
            m.slug, m.changes, _source(m), m.room, m.tier, str(headline or ""), str(len(m.claims) - headline or "")
        )
    return table


def _row(m: Entry) -> dict[str, Any]:
    return {
        "slug": m.slug,
        "room": m.room,
        "kind": m.kind,
        "changes": m.changes,
        "tier": m.tier,
        "tags": [f"{axis}={tag}" for axis, tag in m.tags],
        "paper": dataclasses.asdict(m.paper),
        "claim": [statement for _, _, statement in m.claims],
        "headline": [statement for _, kind, statement in m.claims if kind == "headline"],
    }


def _source(m: Entry) -> str:
    return m.paper.arxiv or f"{m.paper.authors.split(',')[0]} {m.paper.year}"


def show(
    slug: Slug,
    as_yaml: Annotated[bool, typer.Option("--yaml", help="What it builds as data, every default included.")] = False,
) -> None:
    """Show a method: its formula, settings, sentence of parts, paper and claims."""
    m = index.entry(slug)
    if as_yaml:
        typer.echo(catalogue.part(slug).to_yaml(), nl=False)
        return
    screen = wording.screen()
    screen.print(Text.assemble((m.slug, "bold"), f"  {m.room}, {m.tier}: {TIERS[m.tier]}"))
    screen.print(m.changes)
    screen.print(Padding(Text(format.paragraphs(m.doc)), (1, 0, 1, 2)))
    if m.settings:
        screen.print("Settings", style="bold")
        screen.print(_settings(m))
        screen.print()
    screen.print("The sentence, with these settings", style="bold")
    screen.print(wording.sentence(m.sentence))
    screen.print(f"\nIt is {with_article(m.kind)}; {usage_of(m.kind, m.slug)}")
    where = f"arXiv {m.paper.arxiv}" if m.paper.arxiv else m.paper.venue
    screen.print("\nPaper", style="bold")
    screen.print(Padding(Text(f"{m.paper.authors} ({m.paper.year}): {m.paper.title}. {where}"), (0, 0, 0, 2)))
    if m.tags:
        screen.print("\nTags", style="bold")
        screen.print(Padding(Text(", ".join(f"{axis}={tag}" for axis, tag in m.tags)), (0, 0, 0, 2)))
    if m.claims:
        screen.print("\nClaims", style="bold")
        for name, kind, statement in m.claims:
            screen.print(Padding(Text.assemble(f"{name} ", (f"({kind})", "dim"), f": {statement}"), (0, 0, 0, 2)))


def _settings(m: Entry) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, default in m.settings:
        table.add_row(f"  {name}", default)
    return table


def diff(
    left: Annotated[str, typer.Argument(metavar="A", autocompletion=wording.complete_method)],
    right: Annotated[str, typer.Argument(metavar="B", autocompletion=wording.complete_method)],
) -> None:
    """Print the exact differences of two methods, YAML files (of algorithms or recipes), or file.py:function."""
    with checked():
        found = list(_differences(_side(left), _side(right)))
    screen = wording.screen()
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


def _side(name: str) -> Part | dict[str, Any]:
    """Returns the part that a method builds, or a recipe's settings by dotted path, for a name."""
    from polopt.part import Part, build
    from polopt.yaml_data import by_path, read_yaml_file

    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise UsageError(f"{name} does not exist; give a YAML file, a method's name, or file.py:function")
        data = read_yaml_file(path)
        if isinstance(data, dict) and "stages" in data:
            return dict(by_path(data))
        found = build(data)
    else:
        found = catalogue.own_method(name)() if ":" in name else catalogue.part(name)
    if not isinstance(found, Part) or found.method_kind is None:
        raise UsageError(f"{name} gives {found!r:.60}, expected an Algorithm or what another kind of method builds")
    return found


def _differences(left: Part | dict[str, Any], right: Part | dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    from polopt.part import Part
    from polopt.part_diff import diff as differences

    if isinstance(left, Part) and isinstance(right, Part):
        for path, a, b in differences(left, right):
            yield path, repr(a), repr(b)
    elif isinstance(left, dict) and isinstance(right, dict):
        for key in dict.fromkeys([*left, *right]):
            a, b = (repr(side[key]) if key in side else "–" for side in (left, right))
            if a != b:
                yield key, a, b
    else:
        raise UsageError("a recipe and an algorithm cannot be compared: give two recipes, or two methods")


def cite(
    slugs: Annotated[list[str], typer.Argument(metavar="METHOD...", autocompletion=wording.complete_method)],
) -> None:
    """Print the BibTeX of the methods' papers."""
    typer.echo("\n\n".join(m.paper.bibtex(m.slug) for m in map(index.entry, slugs)))


def claims(
    slugs: Slugs = None,
    as_json: JsonOption = False,
    fast: Annotated[bool, typer.Option("--fast", help="Only those of a few seconds.")] = False,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="Seeds for each claim: its own, and others that it was not made with.")
    ] = 1,
    first_seed: Annotated[
        int, typer.Option("--first-seed", min=0, help="The first of them: 0 is a claim's own, all others are fresh.")
    ] = 0,
    mutations: Annotated[
        bool, typer.Option("--mutations", help="Plant the methods' bugs: each must make its claim fail.")
    ] = False,
    kept: Annotated[
        Path | None,
        typer.Option(
            "--output", metavar="FILE", dir_okay=False, help="Keep results there; a stopped run is continued."
        ),
    ] = None,
    cluster: ClusterOption = None,
) -> None:
    """Measure what the papers claim. Ends with code 1 if a claim fails, or does not notice a planted bug."""
    cost: Cost | None = "fast" if fast else None
    with checked():
        planned = evidence.planned_claims(slugs or catalogue.slugs(), cost)
        if mutations:
            runs = evidence.planned_mutations(slugs or catalogue.slugs(), cost)
        else:
            runs = evidence.planned_runs(planned, range(first_seed, first_seed + seeds))
    screen = wording.screen(stderr=as_json)
    results = claims_page.measured(runs, screen, evidence.run_spread(runs, cluster, kept))
    if mutations:
        failing = [f"{row.slug} {row.mutation}" for row in results if not row.noticed]
        verdict = f"{len(results) - len(failing)} of {len(results)} planted bugs are noticed"
        data = [dataclasses.asdict(row) for row in results]
    else:
        rows = evidence.by_claim(results, planned)
        failing = [f"{row.rows[0].slug} {row.rows[0].name}" for row in rows if row.held < len(row.rows)]
        verdict = claims_page.verdict_of(rows)
        data = [row.summary() for row in rows]
    if as_json:
        typer.echo(json.dumps(data, indent=1, ensure_ascii=False))
    seconds = format.duration(sum(row.seconds for row in results))
    screen.print(f"{verdict}, {seconds} of a core." + (f" Failing: {', '.join(failing)}." if failing else ""))
    raise typer.Exit(1 if failing else 0)
