"""The methods as a table: docs/methods.md, made from the method files and from what was last measured.

python -m benchmarks.catalogue

The documentation site has a page for each method, made from the same facts when it is built (docs_site).
"""

from __future__ import annotations

import collections
from typing import Any

from benchmarks import claims, method_facts
from benchmarks.spec import HERE
from polopt import catalogue, tagging, tags
from polopt.claim import CLAIM_KINDS
from polopt.method import KINDS, ROOMS, TIERS, Method
from polopt.part import Part

PAGE = HERE.parent / "docs" / "methods.md"


def page() -> str:
    """The whole page."""
    found = [catalogue.find(slug) for slug in catalogue.slugs()]
    facts = {m.slug: method_facts.claims_of(m.slug) for m in found}
    lines = [
        "# Methods",
        "",
        f"{len(found)} published methods, each an algorithm, a solver, a metric or a guard made of parts. A name leads "
        "to its file; on the documentation site (`make docs`), and by `polopt show METHOD`, to its formula, its "
        "difference to the method that it builds on, and its claims with all that was measured. What the columns mean "
        "stands [below the table](#columns).",
        "",
        "|method|what it changes|room|kind|tier|needs|headline effects that hold|other claims that hold|accuracy, %|"
        "paper|",
        "|---|---|---|---|---|---|---:|---:|---:|---|",
        *(_row(m, facts[m.slug]) for m in found),
        "",
        "## Columns",
        "",
        "*Room* is the kind of part that the paper changes; of several, the one of its main idea: "
        + ", ".join(ROOMS)
        + ".",
        "",
        "*Kind* is what the method builds, and how it is run:",
        "",
        *(f"- {kind}: `{usage}`" for kind, usage in KINDS.items()),
        "",
        "*Tier* is how sure the method is; *proven* follows from the results of its claims:",
        "",
        *(f"- *{tier}*: {meaning}" for tier, meaning in TIERS.items()),
        "",
        "*Needs* is what training by it takes beyond rollouts, rewards and a policy, with its paper's settings.",
        "",
        "*Effects* and *claims* are statements of the paper, each with a program that measures it. The kind of a claim "
        "is what it is to the paper:",
        "",
        *(f"- *{kind}*: {meaning}" for kind, meaning in CLAIM_KINDS.items()),
        "",
        _summary(facts),
        "",
        "*Accuracy* is on held-out problems, in percent, after "
        "[one small budget for every method](../benchmarks/results/methods.md), which says what a method does when it "
        "is dropped in by name and not what it can do; empty where it was not trained.",
        "",
        *_tags(found),
        "",
        "This page is made by `python -m benchmarks.catalogue` from the method files and from the last full run of the "
        f"claims{_when(claims.stored()['about'])}.",
    ]
    return "\n".join(lines) + "\n"


def _tags(found: list[Method[Any, Part]]) -> list[str]:
    """Lists the tags of two surveys, and the algorithms that have each; cells without any are shown."""
    lines = [
        "## Tags",
        "",
        "Two surveys sort methods by what they learn from and how: "
        f"[{tags.AGENTS.title}](https://arxiv.org/abs/{tags.AGENTS.arxiv}), the first six axes, and "
        f"[{tags.MANIPULATION.title}](https://arxiv.org/abs/{tags.MANIPULATION.arxiv}), the others. The tags are "
        "derived from the parts of each algorithm with its paper's settings, so that they say what it does here. "
        "Solvers, metrics and guards have none. `polopt methods --tag update_rule=dpo --tag data_source=self` lists "
        "the methods with both; `polopt methods --by-tag` counts. Nothing here plans for robots: those cells are "
        "empty.",
        "",
        "|axis|tag||methods|",
        "|---|---|---|---|",
    ]
    cells = tags.cells({m.slug: tagging.tags_of(m()) for m in found})
    for (axis, tag), names in cells.items():
        shown = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
        lines.append(f"|{axis}|{tag}|{tags.TAGS[axis][tag]}|{shown or '–'}|")
    return lines


def _summary(facts: dict[str, list[method_facts.ClaimFacts]]) -> str:
    """Counts the claims of all methods by kind."""
    every = [claim for found in facts.values() for claim in found]
    found = collections.Counter(claim.kind for claim in every)
    held = collections.Counter(claim.kind for claim in every if claim.verdict == "holds")
    counts = "; ".join(f"{kind} {held[kind]} of {found[kind]}" for kind in CLAIM_KINDS if found[kind])
    return f"Claims that hold, by kind: {counts}.{_on_seeds(every)}"


def _on_seeds(every: list[method_facts.ClaimFacts]) -> str:
    """Counts the claims that hold on every one of several seeds, and those on which seeds differ; and the bugs that
    were noticed."""
    rows = [claim for claim in every if claim.runs > 1]
    bugs = [bug for slug in catalogue.slugs() for bug in method_facts.bugs_of(slug)]
    text = ""
    if rows:
        always, never = (sum(row.held == bound for row in rows) for bound in (rows[0].runs, 0))
        compared = sum(claim.won is not None for claim in every)
        text = (
            f" {compared} of them compare over seeds with controls at their own best step size. Of {len(rows)} others, "
            f"run on {rows[0].runs} seeds that they were not made with, {always} hold on every seed, {never} on none, "
            f"and {len(rows) - always - never} on some, which do not count as holding."
        )
    noticed, run = sum(bug[2] is True for bug in bugs), sum(bug[2] is not None for bug in bugs)
    return text + (f" Of {run} bugs planted in the methods' own parts {noticed} are noticed by a claim." if run else "")


def _when(about: dict[str, Any]) -> str:
    """Names the date and the commit of the claims' run, and counts those of another commit."""
    if not about:
        return ""
    others = collections.Counter(row.get("commit", "") for row in claims.stored()["rows"])
    others.pop(about["commit"], None)
    others.pop("", None)
    again = "".join(f"; {count} claims at {commit}" for commit, count in sorted(others.items()))
    return f" ({about['date'][:10]}, commit {about['commit']}, {about['machine']['cpu']}{again})"


def _row(m: Method[Any, Part], found: list[method_facts.ClaimFacts]) -> str:
    raced = method_facts.main_job().get(m.slug)
    headline, others = (
        _holding([claim for claim in found if (claim.kind == "headline") == first]) for first in (True, False)
    )
    score = f"{raced['final']['estimate'] * 100:.1f}" if raced else ""
    file = catalogue.files_of(m.slug)[0].name
    cells = [
        f"[{m.slug}](../polopt/methods/{file})",
        m.changes,
        m.room,
        m.kind,
        m.tier,
        ", ".join(method_facts.needs_of(m)),
        headline,
        others,
        score,
        paper(m),
    ]
    return "|" + "|".join(cell.replace("|", "\\|") for cell in cells) + "|"


def _holding(found: list[method_facts.ClaimFacts]) -> str:
    """Counts how many of these claims hold, as "2 of 3"; "?" if none was run."""
    if not found:
        return ""
    run = [claim for claim in found if claim.verdict != "not run yet"]
    return f"{sum(claim.verdict == 'holds' for claim in run) if run else '?'} of {len(found)}"


def paper(m: Method[Any, Part]) -> str:
    """A link to the paper, or where it appeared."""
    it = m.paper
    return f"[arXiv:{it.arxiv}](https://arxiv.org/abs/{it.arxiv})" if it.arxiv else f"{it.venue}"


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{len(catalogue.slugs())} methods")


if __name__ == "__main__":
    main()
