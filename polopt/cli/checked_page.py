"""The results of checks as one page of markdown."""

from __future__ import annotations

import torch

import polopt
from polopt.checks import CheckResult, Report
from polopt.checks.third_party import LIBRARIES

# version, inputs, note, report
Row = tuple[str, str, str, Report]

LEGEND = """\
What `polopt check` found of each loss: **breaks** is an invariance that does not hold; a choice is one that does not \
hold by a rule that can be named, and that may be intended; all else holds. [How to check a loss of your \
own](check.md)."""


def page(names: list[str], rows: list[Row]) -> str:
    """Formats a table of verdicts, then each finding that is not "holds": losses, result, reason, smallest example."""
    titles = list(dict.fromkeys(f.title for *_, report in rows for f in report.findings))
    versions = list(dict.fromkeys(version for version, *_ in rows if version))
    versions += [f"polopt {polopt.__version__}", f"PyTorch {torch.__version__}"]
    parts = [
        "# Checked",
        f"{LEGEND}\n\nVersions: {', '.join(versions)}. This page was written by",
        f"    polopt check --no-lab --markdown {' '.join(names)}",
        _table(titles, rows),
        _fed(rows),
        *(_section(title, rows) for title in titles),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(titles: list[str], rows: list[Row]) -> str:
    lines = ["| loss | " + " | ".join(titles) + " |", "|---|" + "---|" * len(titles)]
    for *_, report in rows:
        found = {f.title: f for f in report.findings}
        cells = [_mark(found[title]) if title in found else "–" for title in titles]
        lines.append(f"| `{report.name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _mark(finding: CheckResult) -> str:
    verdict = f"**{finding.verdict}**" if finding.verdict == "breaks" else finding.verdict
    return f"{verdict}: {finding.short}" if finding.short else verdict


def _fed(rows: list[Row]) -> str:
    """Formats the inputs of other libraries' losses, and the notes of their own documentation, each sentence once."""
    losses_by_text: dict[str, list[str]] = {}
    for _, fed, note, report in rows:
        for text in (fed, note):
            if text:
                losses_by_text.setdefault(text, []).append(f"`{report.name}`")
    if not losses_by_text:
        return ""
    libraries = [LIBRARIES[name] for name in LIBRARIES if any(v.startswith(f"{name} ") for v, *_ in rows)]
    lines = [f"- {', '.join(losses)}: {text}." for text, losses in losses_by_text.items()]
    return "\n\n".join(["## What was fed, and what is documented", *libraries, "\n".join(lines)])


def _section(title: str, rows: list[Row]) -> str:
    """Formats the results of one check by loss, each sentence once."""
    found: dict[tuple[str, str], list[str]] = {}
    first: dict[tuple[str, str], CheckResult] = {}
    for *_, report in rows:
        for finding in report.findings:
            if finding.title == title and finding.verdict != "holds":
                key = (finding.verdict, finding.said)
                found.setdefault(key, []).append(f"`{report.name}`")
                first.setdefault(key, finding)
    if not found:
        return ""
    lines = [f"## {title[:1].upper()}{title[1:]}", "", next(iter(first.values())).why]
    for which, losses in found.items():
        finding = first[which]
        verdict = f"**{finding.verdict}**" if finding.verdict == "breaks" else finding.verdict
        lines += ["", f"{', '.join(losses)}: {verdict}. {finding.said[:1].upper()}{finding.said[1:]}."]
        if finding.verdict == "breaks" and finding.example:
            lines += ["", "```py", finding.example, "```"]
    return "\n".join(lines)
