"""The two pages: one run, and several methods against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from polopt.metrics import Comparison
from polopt.report import compare_figures, run_figures, samples, summary
from polopt.report.page import render, write
from polopt.report.run import Run, read_run


def write_report(run: Path) -> Path:
    """Write `report.html` into a run folder, finished or not, and return its path.

    The page is one file that opens offline. What was not measured is left out; what could not be read is
    said at the top.

    Raises:
        ValueError: `run` is not a folder, or holds none of a run's files.
    """
    found = read_run(run)
    changes = summary.changes(found)
    main = changes[-1] if changes else None
    kinds = summary.kinds(main) if main else []
    shown = [run_figures.learning_curve(found), run_figures.by_kind(kinds)]
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
        training=[f.name for f in training],
        samples=chosen,
        sample_kinds=sorted({s.kind for s in chosen}),
        total_samples=len(found.samples),
        shades=samples.SHADES,
        given=any(t.shade is None for s in chosen for t in s.tokens),
        recipe=found.recipe_text,
        versions=_versions(found),
        citations=_citations(found),
    )
    return write(run / "report.html", page)


def compare_report(comparison: Comparison, path: Path) -> Path:
    """Write a page that compares methods over seeds, and return `path`."""
    first, *others = comparison.methods
    rows = comparison.table()
    page = render(
        "compare.html",
        compare_figures.figures(comparison),
        title=" against ".join([first.name, ", ".join(m.name for m in others)] if others else [first.name]),
        rows=rows,
        seeds={m.name: len(m.seeds) for m in comparison.methods},
        level=comparison.level,
    )
    return write(path, page)


def _versions(run: Run) -> list[tuple[str, str]]:
    names = ("polopt", "commit", "torch", "transformers", "python", "threads", "started")
    known = [(k, run.info[k]) for k in names if run.info.get(k)]
    machine: Any = run.info.get("machine")
    items = machine.items() if isinstance(machine, dict) else [("machine", machine)] if machine else []
    return [(str(k), str(v)) for k, v in (*known, *items)]


def _citations(run: Run) -> list[str]:
    found = run.info.get("citation", [])
    return [str(c) for c in found] if isinstance(found, list) else [str(found)]
