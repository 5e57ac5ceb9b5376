"""What was checked, as one page of markdown."""

from __future__ import annotations

import torch

import polopt
from polopt.checks import Finding, Report

# version, what was fed, note, report
Row = tuple[str, str, str, Report]


def page(names: list[str], rows: list[Row]) -> str:
    """A table of verdicts, then each finding that is not "holds": who, what, why, and the smallest example."""
    titles = list(dict.fromkeys(f.title for *_, report in rows for f in report.findings))
    versions = list(dict.fromkeys([v for v, *_ in rows if v]))
    versions += [f"polopt {polopt.__version__}", f"PyTorch {torch.__version__}"]
    parts = [
        f"Versions: {', '.join(versions)}. Written by `polopt check --no-lab --markdown {' '.join(names)}`.",
        _table(titles, rows),
        "## What was fed, and what is documented",
        _fed(rows),
        *(_section(title, rows) for title in titles),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(titles: list[str], rows: list[Row]) -> str:
    lines = ["| loss | " + " | ".join(titles) + " |", "|---|" + "---|" * len(titles)]
    for *_, report in rows:
        verdicts = {f.title: f.verdict for f in report.findings}
        cells = [_mark(verdicts.get(title, "")) for title in titles]
        lines.append(f"| `{report.name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _mark(verdict: str) -> str:
    return f"**{verdict}**" if verdict == "breaks" else verdict or "–"


def _fed(rows: list[Row]) -> str:
    lines = []
    for _, fed, note, report in rows:
        told = ". ".join(x[:1].upper() + x[1:] for x in (fed, note) if x)
        lines += [f"- `{report.name}`: {told}."] if told else []
    return "\n".join(lines)


def _section(title: str, rows: list[Row]) -> str:
    """One check: what was found of whom, each sentence once."""
    found: dict[tuple[str, str], list[str]] = {}
    first: dict[tuple[str, str], Finding] = {}
    for *_, report in rows:
        for finding in report.findings:
            if finding.title == title and finding.verdict != "holds":
                key = (finding.verdict, finding.said)
                found.setdefault(key, []).append(f"`{report.name}`")
                first.setdefault(key, finding)
    if not found:
        return ""
    lines = [f"## {title[:1].upper()}{title[1:]}", "", next(iter(first.values())).why]
    for (verdict, said), who in found.items():
        lines += ["", f"{', '.join(who)}: {_mark(verdict)}. {said[:1].upper()}{said[1:]}."]
        example = first[verdict, said].example
        if verdict == "breaks" and example:
            lines += ["", "```py", example, "```"]
    return "\n".join(lines)
