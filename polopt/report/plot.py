"""The report's plots as plotly figures, for notebooks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polopt.errors import UserError
from polopt.report import run_figures
from polopt.report.figures import Figure
from polopt.report.page import TEMPLATES
from polopt.report.run import read_run

if TYPE_CHECKING:
    import plotly.graph_objects


def learning_curve(folder: Path) -> plotly.graph_objects.Figure:
    """Returns a plot of a run's held-out and training accuracy over its steps.

    Raises:
        UserError: nothing was measured yet.
        ValueError: the folder holds no run.
    """
    found = run_figures.learning_curve(read_run(folder))
    if found is None:
        raise UserError(f"{folder} has no evaluation and no solved task yet: there is nothing to plot")
    return as_plotly(found)


def as_plotly(figure: Figure) -> plotly.graph_objects.Figure:
    """Converts a figure of the report to plotly, with the colours of the light page, its title and caption."""
    import plotly.graph_objects

    colours = palette()
    layout = painted({**figure.layout, "paper_bgcolor": "@plot", "plot_bgcolor": "@plot"}, colours)
    title = {"text": figure.title, "subtitle": {"text": figure.caption}}
    return plotly.graph_objects.Figure(painted(figure.data, colours), {**layout, "title": title})


def palette() -> dict[str, str]:
    """Returns the colours of the light page, by name, from its style sheet."""
    sheet = (TEMPLATES / "report.css").read_text("utf-8")
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", sheet[: sheet.index("@media")]))


def painted(value: Any, colours: dict[str, str]) -> Any:
    """Returns `value` with every "@name" and "@name/20" (20 % opaque) in it replaced by its colour."""
    if isinstance(value, dict):
        return {k: painted(v, colours) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [painted(v, colours) for v in value]
    if isinstance(value, str) and (found := re.fullmatch(r"@([a-z-]+)(?:/(\d+))?", value)):
        name, opacity = found.groups()
        if opacity is None:
            return colours[name]
        red, green, blue = (int(colours[name][i : i + 2], 16) for i in (1, 3, 5))
        return f"rgba({red},{green},{blue},{int(opacity) / 100:g})"
    return value
