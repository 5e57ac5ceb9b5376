"""The page of an audit of preference pairs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polopt.metrics import Interval, PreferenceRow
from polopt.report.audit_figures import figures
from polopt.report.page import render, write
from polopt.training.auditing import FileAudit

# Groups of one kind whose texts are shown, and rows of a group.
GROUPS, ROWS = 6, 4
# Lines that are named in the table of findings.
LINES = 40


def write_audit(audit: FileAudit, file: Path, path: Path) -> Path:
    """Writes the audit of a file as one self-contained page, and returns the page's path.

    Raises:
        ModuleNotFoundError: jinja2 or plotly is not installed.
    """
    found = figures(audit)
    page = render(
        "audit.html",
        found,
        title=file.name,
        facts=_facts(audit),
        notices=[f"{sentence[:1].upper()}{sentence[1:]}." for sentence in audit.cautions],
        findings=_findings(audit),
        malformed=list(audit.malformed.items())[:LINES],
        plots=[figure.name for figure in found],
        agreement=audit.agreement,
        principles=_principles(audit),
        groups=_groups(audit),
    )
    return write(path, page)


def _facts(audit: FileAudit) -> list[tuple[str, str]]:
    found, flips = audit.found, audit.flips
    facts = [("pairs", f"{found.rows:,}"), ("different prompts", f"{found.prompts:,}")]
    if audit.malformed:
        facts.append(("malformed rows", f"{len(audit.malformed):,}"))
    if audit.agreement is not None:
        facts.append(("annotators", f"{len(audit.agreement.names):,}"))
        if audit.agreement.alpha is not None:
            facts.append(("Krippendorff's alpha", f"{audit.agreement.alpha.estimate:.2f}"))
    if flips is not None:
        facts += [
            ("reference", flips.source or "the file's columns"),
            ("objective", flips.criterion.method),
            ("ranked wrong by the reference", f"{len(flips.wrong):,}"),
            ("left wrong at the target loss", f"{len(flips.left_wrong):,}"),
        ]
    return facts


def _findings(audit: FileAudit) -> list[tuple[str, int, str]]:
    """Returns each kind of finding, its number of groups or rows, and their lines."""
    found, flips = audit.found, audit.flips
    grouped = [
        ("duplicates", found.duplicates),
        ("near-duplicates", found.near_duplicates),
        ("opposite labels", found.conflicts),
        ("circles", found.cycles),
    ]
    single = [("held-out prompts", found.leaks), ("nearly held-out prompts", found.near_leaks)]
    if flips is not None:
        single += [
            ("ranked wrong by the reference", flips.wrong),
            (f"left wrong by {flips.criterion.method}", flips.left_wrong),
        ]
    rows = [(name, len(groups), "; ".join(_lines(group) for group in groups[:LINES])) for name, groups in grouped]
    return [*rows, *((name, len(lines), _lines(lines)) for name, lines in single)]


def _lines(lines: Sequence[int]) -> str:
    return ", ".join(map(str, lines[:LINES])) + (", …" if len(lines) > LINES else "")


def _principles(audit: FileAudit) -> dict[str, Any] | None:
    """Returns each annotator's ranks of the principles as a table, and the discrepancies of two annotators."""
    if audit.discretion is None:
        return None
    ranks: dict[str, dict[str, float]] = {}
    names = [name for name in audit.discretion.values if name.startswith("rank of ")]
    for name in names:
        principle, _, annotator = name.removeprefix("rank of ").rpartition(" for ")
        ranks.setdefault(annotator, {})[principle] = audit.discretion.values[name]
    shares = [(name, audit.discretion.intervals[name]) for name in ("consensus", "conflict", "indifference")]
    apart: list[tuple[str, Interval]] = [
        (name.removeprefix("discrepancy of "), interval)
        for name, interval in audit.discretion.intervals.items()
        if name.startswith("discrepancy of ")
    ]
    principles = list(dict.fromkeys(name for row in ranks.values() for name in row))
    return {"ranks": ranks, "principles": principles, "shares": shares, "discrepancies": apart}


def _groups(audit: FileAudit) -> list[tuple[str, str, list[list[PreferenceRow]], int]]:
    """Returns the texts of findings: their title, what they are, groups of rows, and how many groups there are."""
    found, by_line = audit.found, {row.place: row for row in audit.rows}
    left = () if audit.flips is None else tuple((line,) for line in _hardest(audit))
    kinds = [
        ("Opposite labels", "The same pair with both labels.", found.conflicts),
        ("Circles", "Preferences of one prompt that go round.", found.cycles),
        ("Duplicates", "The same pair with the same label.", found.duplicates),
        ("Near-duplicates", "Pairs whose texts are nearly the same.", found.near_duplicates),
        ("Left wrong", "Pairs that the objective does not turn, the hardest first.", left),
    ]
    return [
        (title, about, [[by_line[line] for line in group[:ROWS]] for group in groups[:GROUPS]], len(groups))
        for title, about, groups in kinds
        if groups
    ]


def _hardest(audit: FileAudit) -> list[int]:
    """Returns the lines of the pairs that are left wrong, by the reference's margin."""
    assert audit.flips is not None
    margins = dict(zip(audit.flips.lines, audit.flips.measured.rows["reference_margin"].tolist(), strict=True))
    return sorted(audit.flips.left_wrong, key=lambda line: margins[line])
