"""The methods as a page: docs/methods.md, made from the method files and from what was last measured.

python -m benchmarks.catalogue
"""

from __future__ import annotations

import collections
import json
from typing import Any

from benchmarks import claims, table
from benchmarks.spec import HERE
from polopt import catalogue
from polopt.claim import CLAIM_KINDS
from polopt.method import TIERS, Method
from polopt.part import Part
from polopt.part_diff import diff

PAGE = HERE.parent / "docs" / "methods.md"
RACE = HERE / "results" / "methods.json"
COMMON = {"group": 8, "kl": 0.0}
RACED = (
    " Accuracy is from [one small budget for every method](../benchmarks/results/methods.md), which says what a method "
    "does when it is dropped in by name."
)


def page() -> str:
    """The whole page."""
    found = [catalogue.find(slug) for slug in catalogue.slugs()]
    measured = claims.stored()
    race = json.loads(RACE.read_text(encoding="utf-8")) if RACE.is_file() else {"rows": []}
    accuracy = {row["name"].partition("(")[0]: row for row in race["rows"]}
    suites = _suites()
    claim_rows = {m.slug: [row for row in measured["rows"] if row["slug"] == m.slug] for m in found}
    lines = [
        "# Methods",
        "",
        f"{len(found)} published methods, each a sentence made of parts. This page is made by "
        "`python -m benchmarks.catalogue` from the method files and from the last full run of the claims"
        f"{_when(measured['about'])}.{RACED if race['rows'] else ''}",
        "",
        *(f"- *{tier}*: {meaning}" for tier, meaning in TIERS.items()),
        "",
        _summary(claim_rows),
        "",
        *(f"- *{kind}*: {meaning}" for kind, meaning in CLAIM_KINDS.items()),
        "",
        "|method|what it changes|paper|tier|headline effects that hold|other claims that hold|held-out accuracy, %|",
        "|---|---|---|---|---:|---:|---:|",
    ]
    lines += [_row(m, claim_rows[m.slug], accuracy.get(m.slug)) for m in found]
    for m in found:
        lines += ["", *_section(m, claim_rows[m.slug]), *suites.get(m.slug, [])]
    return "\n".join(lines) + "\n"


def _summary(claim_rows: dict[str, list[dict[str, Any]]]) -> str:
    """Counts the claims of all methods by kind."""
    found = collections.Counter(claim.kind for slug in claim_rows for claim in catalogue.claims_of(slug))
    held = collections.Counter(
        claim.kind
        for slug, rows in claim_rows.items()
        for claim in catalogue.claims_of(slug)
        if any(row["name"] == claim.name and row["holds"] for row in rows)
    )
    counts = "; ".join(f"{kind} {held[kind]} of {found[kind]}" for kind in CLAIM_KINDS if found[kind])
    return f"Claims that hold, by kind: {counts}.{_on_seeds()}"


def _on_seeds() -> str:
    """Counts the claims that hold on every one of several seeds, and those on which seeds differ."""
    rows = claims.seeded()["rows"]
    if not rows:
        return ""
    always, never = (sum(row["held"] == of for row in rows) for of in (rows[0]["seeds"], 0))
    return (
        f" Of {len(rows)} fast ones, run on {rows[0]['seeds']} seeds each, their own and others that they were not "
        f"made with, {always} hold on every seed, {never} on none, and {len(rows) - always - never} on some."
    )


def _when(about: dict[str, Any]) -> str:
    if not about:
        return ""
    later: dict[str, list[str]] = {}
    for slug, commit in sorted(about.get("again", {}).items()):
        later.setdefault(commit, []).append(slug)
    again = "".join(f"; {', '.join(slugs)} at {commit}" for commit, slugs in later.items())
    return f" ({about['date'][:10]}, commit {about['commit']}, {about['machine']['cpu']}{again})"


def _suites() -> dict[str, list[str]]:
    """By method, what it reached where its idea matters."""
    found: dict[str, list[str]] = {}
    for file in sorted((HERE / "results").glob("methods-*.json")):
        data = json.loads(file.read_text(encoding="utf-8"))
        for row in data["rows"]:
            if row["name"] == data["yardstick"]:
                continue
            gaps = {"batches": row["difference"], **row["equal"]}
            gaps_text = ", ".join(
                f"{g['estimate'] * 100:+.1f} ({g['low'] * 100:+.1f} to {g['high'] * 100:+.1f}) at equal {budget}"
                for budget, g in gaps.items()
            )
            line = (
                f"- On [{data['suite']}](../benchmarks/results/{file.stem}.md), as `{table.brief(row['name'])}` "
                f"against `{data['yardstick']}`, points of held-out accuracy: {gaps_text}."
            )
            found.setdefault(row["name"].partition("(")[0], []).append(line)
    return found


def _row(m: Method[Any, Part], rows: list[dict[str, Any]], raced: dict[str, Any] | None) -> str:
    kinds = {claim.name: claim.kind for claim in catalogue.claims_of(m.slug)}
    headline = _holding(rows, [name for name, kind in kinds.items() if kind == "headline"])
    others = _holding(rows, [name for name, kind in kinds.items() if kind != "headline"])
    score = f"{raced['final']['estimate'] * 100:.1f}" if raced else ""
    return f"|[{m.slug}](#{m.slug})|{m.changes}|{_paper(m)}|{m.tier}|{headline}|{others}|{score}|"


def _holding(rows: list[dict[str, Any]], names: list[str]) -> str:
    """How many of these claims hold, as "2 of 3"; "?" for those that were not run."""
    if not names:
        return ""
    found = [row for row in rows if row["name"] in names]
    return f"{sum(row['holds'] for row in found) if found else '?'} of {len(names)}"


def _paper(m: Method[Any, Part]) -> str:
    it = m.paper
    return f"[arXiv:{it.arxiv}](https://arxiv.org/abs/{it.arxiv})" if it.arxiv else f"{it.venue}"


def _section(m: Method[Any, Part], rows: list[dict[str, Any]]) -> list[str]:
    it = m.paper
    lines = [
        f"## {m.slug}",
        "",
        f"{it.title}. {it.authors}, {it.year}. {_paper(m)}. Room: {m.room}. Tier: {m.tier}.",
        "",
        m.changes,
        "",
    ]
    lines += ["```text", m.doc, "```", ""]
    if m.slug != "grpo" and m.kind == "algorithm":
        lines += ["What differs from `grpo` without KL:", "", "|where|`grpo`|here|", "|---|---|---|"]
        # Groups of one size and no KL on both sides where they can be, so that they are no difference.
        settings = {k: v for k, v in COMMON.items() if k in m.settings()}
        for path, base, changed in diff(catalogue.method("grpo", **COMMON), m(**settings)):
            lines.append(f"|{path}|`{_cell(base)}`|`{_cell(changed)}`|")
        lines.append("")
    found = {row["name"]: row for row in rows}
    seeds = {(row["slug"], row["name"]): (row["held"], row["seeds"]) for row in claims.seeded()["rows"]}
    for claim in catalogue.claims_of(m.slug):
        row = found.get(claim.name)
        verdict = "not run yet" if row is None else "holds" if row["holds"] else "**fails**"
        verdict = verdict[0].upper() + verdict[1:]
        if (m.slug, claim.name) in seeds:
            held, of = seeds[m.slug, claim.name]
            verdict += f"; on {held} of {of} seeds"
        lines.append(f"- *{claim.kind}*: {claim.statement} Against: {claim.baseline}. {verdict}.")
        if row is not None:
            numbers = ", ".join(f"{name} {value:.4g}" for name, value in row["measured"].items())
            lines.append(f"  Measured: {numbers}. Criterion: {row['criterion']}.")
            lines += [f"  {row['note']}"] if row["note"] else []
    return lines


def _cell(value: Any) -> str:
    return repr(value).replace("|", "\\|")


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{len(catalogue.slugs())} methods")


if __name__ == "__main__":
    main()
