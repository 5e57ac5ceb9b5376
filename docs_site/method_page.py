"""The page of a method: formula, difference to its parent, claims as measured, where it runs, settings, citation."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

from benchmarks import method_facts
from benchmarks.method_facts import ClaimFacts
from docs_site import docstrings
from polopt import catalogue
from polopt.claim import CLAIM_KINDS
from polopt.method import KINDS, TIERS, Method, with_article
from polopt.part import Part

HEADINGS = {
    "headline": "Headline effects",
    "part": "Parts of the argument",
    "identity": "Identities",
    "theory": "Theory",
    "limit": "Limits",
    "ours": "Variants of ours",
}
WHERE = "Declared by each loop and checked before a run begins; settings as the paper has them."


def escaped(text: object) -> str:
    return html.escape(str(text), quote=False)


def code(text: object) -> str:
    return f"<code>{escaped(text)}</code>"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Returns a table as HTML; its cells are HTML already."""
    top = "".join(f"<th>{cell}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def figure(value: float) -> str:
    """Formats a measured figure, as `polopt claims` does."""
    return f"{value:.4g}".replace("-", "−")


def page(slug: str, links: Iterable[tuple[str, str]]) -> str:
    """Returns the Markdown of a method's page. links: name and address of each of its files."""
    m = catalogue.find(slug)
    sections = [
        _head(m),
        _formula(m),
        _difference(m),
        _claims(m),
        _bugs(m),
        _elsewhere(m),
        _where(m),
        _use(m),
        _cite(m),
    ]
    files = "".join(f'<li><a href="{address}">{code(name)}</a></li>' for name, address in links)
    return "\n\n".join([*(text for text in sections if text), f"## Files\n\n<ul>{files}</ul>"]) + "\n"


def _head(m: Method[Any, Part]) -> str:
    it = m.paper
    where = f'<a href="https://arxiv.org/abs/{it.arxiv}">arXiv:{it.arxiv}</a>' if it.arxiv else escaped(it.venue)
    chips = "".join(
        f'<span class="chip" title="{title}">{text}</span>'
        for text, title in (
            (m.kind, "what it builds"),
            (m.room, "the kind of part that the paper changes"),
            (m.tier, TIERS[m.tier]),
        )
    )
    needs = method_facts.needs_of(m)
    takes = f"<p>It needs: {escaped(', '.join(needs))}.</p>" if needs else ""
    return (
        f"---\ntitle: {m.slug}\nsearch:\n  boost: 2\n---\n\n# {m.slug}\n\n"
        f'<p class="back"><a href="../methods.html">All methods</a></p>\n'
        f'<p class="chips">{chips}</p>\n<p class="lead">{escaped(m.changes)}</p>\n'
        f'<p class="paper"><cite>{escaped(it.title)}</cite><br>{escaped(it.authors)}, {it.year}. {where}</p>\n'
        f"<p><em>{m.tier}</em>: {TIERS[m.tier]}.</p>\n{takes}"
    )


def _formula(m: Method[Any, Part]) -> str:
    return (
        f"## Formula\n\n<div>\n{docstrings.as_html(m.doc, frozenset(m.settings()))}\n</div>\n\n"
        f"<details><summary>As it stands in the code</summary>\n"
        f'<pre class="notation"><code>{escaped(m.doc).replace(chr(10), "&#10;")}</code></pre></details>'
    )


def _difference(m: Method[Any, Part]) -> str:
    parent = method_facts.parent_of(m)
    if parent is None:
        return ""
    values = ", ".join(f"{key}={value!r}" for key, value in parent.settings.items())
    here = ", ".join(f"{key}={value!r}" for key, value in parent.own.items())
    why = (
        f"Its builder begins with {code(parent.slug)}."
        if parent.called
        else f"Its builder begins with no other method; it is compared with {code(parent.slug)}, without KL and with "
        "groups of one size where both have them."
    )
    built = f"Left: {code(f'{parent.slug}({values})')}; right: {code(f'{m.slug}({here})')}."
    rows = [(code(path or "all of it"), code(repr(a)), code(repr(b))) for path, a, b in parent.differences]
    shown = (
        table(("where", escaped(parent.slug), escaped(m.slug)), rows) if rows else "<p>With these, nothing differs.</p>"
    )
    link = f'<a href="{parent.slug}.html">its page</a>'
    return f"## Difference to {parent.slug}\n\n<p>{why} {built} See {link}.</p>\n{shown}"


def _claims(m: Method[Any, Part]) -> str:
    found = method_facts.claims_of(m.slug)
    if not found:
        return "## Claims\n\n<p>None.</p>"
    lines = [
        "## Claims",
        "",
        "<p>Each is a statement of the paper and a program that measures it, on small problems whose answers are "
        f"known. {code(f'polopt claims {m.slug}')} measures them again.</p>",
    ]
    for kind, meaning in CLAIM_KINDS.items():
        some = [claim for claim in found if claim.kind == kind]
        if some:
            lines += ["", f"### {HEADINGS[kind]}", "", f"<p>{kind}: {escaped(meaning)}.</p>", *map(claim_html, some)]
    return "\n".join(lines)


def claim_html(claim: ClaimFacts) -> str:
    """Returns a claim as HTML: verdict, statement, figures, criterion, note."""
    state = {"holds": "holds", "on some seeds": "mixed", "fails": "fails", "not run yet": "unknown"}[claim.verdict]
    counts = []
    if claim.won is not None:
        counts.append(f"criterion met on {claim.won[0]} of {claim.won[1]} seeds")
    elif claim.runs:
        counts.append(f"holds on {claim.held} of {claim.runs} fresh seeds")
    small = f" <small>{', '.join(counts)}</small>" if counts else ""
    verdict = f'<span class="verdict {state}">{claim.verdict}</span>{small}'
    against = f"<p><b>Against</b>: {escaped(claim.baseline)}.</p>" if claim.baseline else ""
    sizes = ", ".join(f"{escaped(side)} {size:g}" for side, size in claim.step_sizes.items())
    parts = [
        f'<div class="claim {state}"><p>{verdict} <code>{escaped(claim.name)}</code></p>',
        f'<p class="statement">{escaped(claim.statement)}</p>{against}',
        _figures(claim),
        f"<p><b>Best step sizes</b>: {sizes}.</p>" if sizes else "",
        f"<p><b>Criterion</b>: {escaped(claim.criterion)}.</p>" if claim.criterion else "",
        f"<p><b>Note</b>: {escaped(claim.note)}</p>" if claim.note else "",
        "</div>",
    ]
    return "".join(parts)


def _figures(claim: ClaimFacts) -> str:
    if not claim.measured:
        return ""
    several = any(limits for _, limits in claim.measured.values())
    head = ["measured", "mean", "95 % interval"] if several else ["measured", "value"]
    rows = []
    for name, (value, limits) in claim.measured.items():
        ends = "" if limits is None else f"{figure(limits[0])} to {figure(limits[1])}"
        if limits == (value, value):
            ends = "the same on every seed"
        rows.append([escaped(name), figure(value)] + ([ends] if several else []))
    return table(head, rows)


def _bugs(m: Method[Any, Part]) -> str:
    """Returns the bugs that are planted in the method, and whether their claims noticed them."""
    found = method_facts.bugs_of(m.slug)
    if not found:
        return ""
    verdict = {True: "noticed", False: "not noticed", None: "not run yet"}
    rows = [(escaped(statement), code(name), verdict[noticed]) for statement, name, noticed in found]
    return (
        "## Planted bugs\n\n<p>A claim that holds whatever the code does shows nothing. Each of these bugs, planted in "
        f"the method's own part, must make its claim fail.</p>\n{table(('bug', 'claim', 'when it was last run'), rows)}"
    )


def _elsewhere(m: Method[Any, Part]) -> str:
    lines: list[str] = []
    row = method_facts.main_job().get(m.slug)
    if row:
        final = row["final"]
        spread = f"{final['low'] * 100:.1f} to {final['high'] * 100:.1f}"
        gap = (
            f", {method_facts.interval(row['difference'])} points against `grpo` without KL"
            if row["difference"]
            else ""
        )
        lines.append(
            f"- On [the main job](../benchmarks/results/methods.md), with one small budget for every method and "
            f"{final['n']} seeds: {final['estimate'] * 100:.1f} % of held-out problems ({spread}){gap}."
        )
    lines += [f"- {sentence}" for sentence in method_facts.suites().get(m.slug, [])]
    note = (
        "Intervals are 95 %, over seeds. One that holds 0 shows no difference. Nobody's settings were tuned for these."
    )
    return "\n".join(["## Measured in training", "", *lines, "", note]) if lines else ""


def _where(m: Method[Any, Part]) -> str:
    rows = method_facts.where_it_runs(m)
    if not rows:
        return (
            f"## Where it runs\n\n<p>It is {with_article(m.kind)}: {code(KINDS[m.kind].replace('SLUG', m.slug))}.</p>"
        )
    cells = [(escaped(name), escaped(answer), escaped(reason)) for name, answer, reason in rows]
    return f"## Where it runs\n\n<p>{WHERE}</p>\n{table(('loop or trainer', 'runs', 'why not'), cells)}"


def _use(m: Method[Any, Part]) -> str:
    settings = m.settings()
    rows = [(code(name), code(repr(default))) for name, default in settings.items()]
    shown = table(("setting", "default"), rows) if rows else "<p>It has no settings.</p>"
    command = escaped(KINDS[m.kind].replace("SLUG", m.slug))
    python = {"algorithm": "method", "solver": "solver", "metric": "metric"}.get(m.kind)
    build = f'\n\nimport polopt as po\npo.{python}("{m.slug}")' if python else ""
    shell = f"<pre><code>{command}{escaped(build)}</code></pre>".replace("\n", "&#10;")
    return f"## Settings\n\n{shown}\n\n## Use\n\n{shell}"


def _cite(m: Method[Any, Part]) -> str:
    return f"## Cite\n\n```bibtex\n{m.paper.bibtex(m.slug)}\n```"
