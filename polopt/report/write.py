"""Writing of the two pages: one run, and a comparison of several methods."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polopt.metrics import Comparison
from polopt.report import compare_figures, run_figures, samples, summary
from polopt.report.frequency_figure import frequency
from polopt.report.page import render, write
from polopt.report.rule_figure import rules
from polopt.report.run import RunData, read_run


def write_report(run: Path) -> Path:
    """Writes `report.html` into a run folder, finished or not, and returns its path.

    The page is one file that opens offline. Quantities that were not measured are left out; a note at the top lists
    contents that could not be read.

    Raises:
        ValueError: `run` is not a folder, or holds none of a run's files.
    """
    found = read_run(run)
    changes = summary.changes(found)
    main = changes[-1] if changes else None
    kinds = summary.kinds(main) if main else []
    first = run_figures.learning_curve(found) or run_figures.measures(found)
    shown = [first, run_figures.by_kind(kinds), rules(found), frequency(found)]
    training = run_figures.run_figures(found)
    chosen = samples.choose(found.samples)
    page = render(
        "run.html",
        [f for f in (*shown, *training) if f is not None],
        title=found.name,
        facts=summary.headline(found),
        notices=summary.notices(found, main),
        changes=changes,
        main=main,
        kinds=kinds,
        others=summary.others(found),
        training=[f.name for f in training],
        clip=None if found.clip is None else base64.b64encode(found.clip).decode(),
        samples=chosen,
        sample_kinds=sorted({s.kind for s in chosen}),
        total_samples=len(found.samples),
        shades=samples.SHADES,
        given=any(t.shade is None for s in chosen for t in s.tokens),
        recipe=found.recipe_text,
        versions=machine_facts(found.info),
        citations=_citations(found),
    )
    return write(run / "report.html", page)


def run_notices(run: Path) -> list[str]:
    """Returns the warnings about a run that its report shows."""
    found = read_run(run)
    changes = summary.changes(found)
    return summary.notices(found, changes[-1] if changes else None)


def compare_report(comparison: Comparison, path: Path, about: Mapping[str, Any] | None = None) -> Path:
    """Writes a page that compares methods over seeds, and returns `path`.

    about: description of the comparison by `training.compare.about`; links to runs are relative to the page.
    """
    first, *others = comparison.methods
    rows = comparison.table()
    page = render(
        "compare.html",
        compare_figures.figures(comparison),
        title=" against ".join([first.name, ", ".join(m.name for m in others)] if others else [first.name]),
        rows=rows,
        letters=comparison.letters() if len(others) > 1 else {},
        seeds={m.name: len(m.seeds) for m in comparison.methods},
        level=comparison.level,
        anytime=comparison.anytime,
        unit=comparison.unit,
        score=comparison.score,
        about=about,
        machine=[] if about is None else machine_facts(about["run"]),
        kinds=[] if about is None else list(about["methods"][first.name]["kinds"]),
    )
    return write(path, page)


def write_comparison(comparison: Comparison, folder: Path, about: Mapping[str, Any] | None) -> Path:
    """Writes the page of a comparison into its folder, and returns its path.

    The pages of the runs that it links to are written too, where they are missing or older than their run.
    """
    for run in () if about is None else [folder / name for of in about["methods"].values() for name in of["runs"]]:
        page = run / "report.html"
        if not page.exists() or page.stat().st_mtime < (run / "run.json").stat().st_mtime:
            write_report(run)
    return compare_report(comparison, folder / "report.html", about)


def machine_facts(info: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns versions and machine of a run.json, as (label, value)."""
    names = ("polopt", "commit", "torch", "transformers", "python", "threads", "started")
    known = [(k, info[k]) for k in names if info.get(k)]
    machine: Any = info.get("machine")
    items = machine.items() if isinstance(machine, dict) else [("machine", machine)] if machine else []
    return [(str(k), str(v)) for k, v in (*known, *items)]


def _citations(run: RunData) -> list[str]:
    found = run.info.get("citation", [])
    return [str(c) for c in found] if isinstance(found, list) else [str(found)]
