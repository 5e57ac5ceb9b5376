"""The implementation of `polopt check`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from polopt import catalogue
from polopt.checks import Report, SampleBatch, check, peer
from polopt.checks.lab import GradientComparison
from polopt.checks.plain_loss import is_loss
from polopt.checks.third_party import INSTALL
from polopt.checks.violation import quoted
from polopt.cli import checked_page, wording
from polopt.cli.command_group import UsageError, checked
from polopt.guards import Privileges, read_rules
from polopt.part import Part, build
from polopt.part_names import ROOMS, locate
from polopt.yaml_data import read_yaml

COLOURS = {"holds": "green", "choice": "yellow", "breaks": "bold red"}


@dataclasses.dataclass(frozen=True)
class Subject:
    """The subject of a check. made_by: lines that make it, for the examples; None if its own name suffices. version,
    fed, note: of another library's loss."""

    name: str
    thing: Part | Callable[..., Any]
    made_by: list[str] | None = None
    version: str = ""
    fed: str = ""
    note: str = ""


def run(names: list[str], *, as_json: bool, as_markdown: bool, lab: bool, batch: str | None) -> None:
    """Runs `polopt check`."""
    with checked():
        make = None if batch is None else _loaded(batch)
    subjects = [_subject(name) for name in names]
    screen = wording.screen(stderr=as_json or as_markdown)
    found: list[tuple[Subject, list[Report]]] = []
    for subject in subjects:
        with _busy(screen, f"checking {subject.name} …"), checked():
            reports = _reports(subject, make, lab)
        found.append((subject, reports))
        if not (as_json or as_markdown):
            _print(screen, subject, reports)
    if as_json:
        typer.echo(json.dumps([_plain(s, r) for s, rs in found for r in rs], indent=1, ensure_ascii=False))
    if as_markdown:
        typer.echo(checked_page.page(names, [(s.version, s.fed, s.note, r) for s, rs in found for r in rs]), nl=False)
    raise typer.Exit(1 if any(r.breaks for _, rs in found for r in rs) else 0)


@contextmanager
def _busy(screen: Console, what: str) -> Iterator[None]:
    with screen.status(what) if screen.is_terminal else nullcontext():
        yield


def _reports(subject: Subject, make: Callable[..., SampleBatch] | None, lab: bool) -> list[Report]:
    return check(subject.thing, subject.name, lab=lab, made_by=subject.made_by, batch=make)


# Subjects -----------------------------------------------------------------------------------------------------


def _subject(name: str) -> Subject:
    with checked():
        if name.partition(":")[0] in INSTALL:
            found = peer(name)
            made_by = ["from polopt.checks import peer", f"loss = peer({quoted(name)}).loss"]
            version = f"{name.partition(':')[0]} {found.version}"
            return Subject(name, found.loss, made_by, version, found.fed, found.note)
        if name.lstrip().startswith("{"):
            return Subject(name, _from_settings(name))
        if name.endswith((".yaml", ".yml")):
            return Subject(name, Privileges(rules=read_rules(name)))
        if ":" in name:
            return _own(name)
        if name.partition(".")[0] in ROOMS:
            return Subject(name, _built(locate(name), name))
        return Subject(name, catalogue.part(name))


def _from_settings(name: str) -> Part:
    """Builds a part from `{part: objectives.Clip, low: 0.1}`, or `{name: grpo, group: 4}`."""
    data = read_yaml(name, "the part")
    if isinstance(data, dict) and "part" in data:
        return build(data)
    settings = wording.method(name)
    assert isinstance(settings, dict), "it begins with a brace"
    return catalogue.part(settings["name"], **{k: v for k, v in settings.items() if k != "name"})


def _own(name: str) -> Subject:
    """Loads a part, a class of parts, a plain loss, or a function that builds a part."""
    found = _loaded(name)
    a_class = isinstance(found, type)
    subject = _built(found, name) if isinstance(found, type) else found
    if isinstance(subject, Part):
        return Subject(name, subject)
    if not callable(subject):
        raise UsageError(f"{name} is {subject!r:.60}, expected a part or a function")
    if is_loss(subject):
        return Subject(name, subject, [f"loss = locate({quoted(name)})" + "()" * a_class])
    built = subject()
    if not isinstance(built, Part):
        raise UsageError(f"{name} gives {built!r:.60}, expected a part")
    return Subject(name, built)


def _loaded(name: str) -> Any:
    """Loads the object of a name; errors while loading count as user errors."""
    with checked():
        return locate(name)


def _built(cls: Callable[..., Any], name: str) -> Any:
    """Builds a part of a class, with its defaults."""
    try:
        return cls()
    except TypeError as error:
        raise UsageError(
            f"{name} does not build without settings: {error}; give them, as in '{{part: {name}, ...: ...}}', or name "
            "a function that builds it"
        ) from None


# Output -----------------------------------------------------------------------------------------------------


def _print(screen: Console, subject: Subject, reports: list[Report]) -> None:
    for report in reports:
        fed = ", ".join(x for x in (subject.version, subject.fed) if x)
        screen.print(Text.assemble((report.name, "bold"), f"  {report.kind}", (f"  {fed}" if fed else "", "dim")))
        if report.refused:
            screen.print(f"Not checked: {report.refused}.\n")
            continue
        screen.print(Padding(_findings(report), (1, 0)))
        for finding in report.breaks:
            screen.print(Text.assemble((finding.title, "bold red"), f"  {finding.said}"))
            screen.print(Padding(Text(finding.why), (0, 0, 0, 2)))
            if finding.example:
                # Never wrapped, so that the lines can be pasted.
                lines = [f"    {line}".rstrip() for line in finding.example.split("\n")]
                screen.print(Text("\n".join(["", *lines, ""])), soft_wrap=True)
        if isinstance(report.lab, list):
            screen.print(_lab(report.lab))
        elif report.lab:
            screen.print(f"Bias and variance not measured: {report.lab}.")
        screen.print(_verdict(report) + "\n")


def _verdict(report: Report) -> str:
    broken = [f.title for f in report.breaks]
    choices = [f.title for f in report.findings if f.verdict == "choice"]
    sentence = f"{len(report.findings) - len(broken) - len(choices)} of {len(report.findings)} hold."
    sentence += f" Choices: {', '.join(choices)}." if choices else ""
    return sentence + (f" Breaks: {', '.join(broken)}." if broken else "")


def _findings(report: Report) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("check", style="bold", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("found", ratio=1)
    for finding in report.findings:
        table.add_row(finding.title, Text(finding.verdict, COLOURS[finding.verdict]), finding.said)
    return table


def _lab(rows: list[GradientComparison]) -> Table:
    """Formats the comparisons with the exact gradient of the expected outcome."""
    table = Table(box=None, pad_edge=False, title_justify="left", caption_justify="left")
    table.title = "Mean gradient against the exact one"
    table.caption = (
        "scale: the factor that fits best. off by: what is left then, relative to the exact gradient; from sampling: "
        "what sampling alone would leave. variance: of one batch, at scale 1, ± standard error."
    )
    table.add_column("problem", style="bold", no_wrap=True)
    for name in ("batches", "cosine", "scale", "off by", "from sampling", "variance"):
        table.add_column(name, justify="left" if name == "batches" else "right")
    for row in rows:
        error = f" ± {row.variance_se:.2g}" if row.variance_se else ""
        table.add_row(
            row.problem,
            row.batches,
            f"{row.cosine:.4f}",
            f"{row.scale:.3g}",
            f"{row.left:.3f}",
            f"{row.left_se:.3f}" if row.left_se else "–",
            f"{row.variance:.3g}{error}",
        )
    return table


def _plain(subject: Subject, report: Report) -> dict[str, Any]:
    found = {"version": subject.version, "fed": subject.fed, "note": subject.note}
    return {**dataclasses.asdict(report), **{k: v for k, v in found.items() if v}, "breaks": bool(report.breaks)}
