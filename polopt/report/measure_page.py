"""The page of a measured file, and the plot of a metric's bound."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from polopt.metrics import BoundPlot, Measured, Metric, MetricError
from polopt.report.figures import Figure, short, text
from polopt.report.page import render, write
from polopt.report.plot import as_plotly

if TYPE_CHECKING:
    import plotly.graph_objects


def bound_figure(plot: BoundPlot) -> Figure:
    """Draws points, the data's own point and the bound."""
    right = max([*plot.x.tolist(), plot.at[0]]) * 1.03 or 1.0
    corner = plot.ceiling / plot.slope if plot.slope > 0 else right
    ends = sorted({0.0, min(corner, right), right})
    bound = plot.bound(ends).tolist()
    dots = {"type": "scatter", "mode": "markers", "hovertemplate": "%{x:.3g}: %{y:.3g}"}
    data: list[dict[str, Any]] = [
        {
            **dots,
            "x": [short(x) for x in plot.x.tolist()],
            "y": [short(y) for y in plot.y.tolist()],
            "name": text(plot.points_name),
            "marker": {"color": "@accent/55", "size": 7},
        },
        {
            **dots,
            "x": [plot.at[0]],
            "y": [plot.at[1]],
            "name": text(plot.at[2]),
            "marker": {"color": "@second", "size": 12, "symbol": "diamond"},
        },
        {
            "type": "scatter",
            "mode": "lines",
            "x": ends,
            "y": bound,
            "name": text(plot.bound_name),
            "line": {"color": "@quiet", "width": 1.8, "dash": "dash"},
            "hoverinfo": "skip",
        },
    ]
    layout = {
        "height": 440,
        "xaxis": {"title": {"text": text(plot.x_name)}, "range": [0, right]},
        "yaxis": {"title": {"text": text(plot.y_name)}, "range": [-0.02 * plot.ceiling, 1.05 * plot.ceiling]},
        "hovermode": "closest",
        "showlegend": True,
    }
    return Figure("bound", plot.title, plot.caption, data, layout, wide=True)


def bound_plot(metric: Metric, data: Any) -> plotly.graph_objects.Figure:
    """Returns the plot of a metric's bound on some data, for notebooks.

    Raises:
        MetricError: the metric has no bound on these data.
    """
    plot = metric.plot(data)
    if plot is None:
        raise MetricError(f"{metric!r:.80} has no bound on these data to draw")
    return as_plotly(bound_figure(plot))


def write_measured(metric: Metric, name: str, data: Any, found: Measured, file: Path, path: Path) -> Path:
    """Writes the numbers of a measured file, and the plot of the metric's bound if it has one, as one self-contained
    page, and returns the page's path.

    name: of the metric. data, found: what was measured, and the result.
    """
    plot = metric.plot(data)
    rows = [
        (key, f"{value:.4g}", None if interval is None else (f"{interval.low:.4g}", f"{interval.high:.4g}"))
        for key, value in found.values.items()
        for interval in [found.intervals.get(key)]
    ]
    facts = [("settings", repr(metric))]
    notices = [f"{sentence[:1].upper()}{sentence[1:]}." for sentence in found.cautions]
    if plot is not None:
        above = int((plot.y > plot.bound(plot.x) + 1e-9).sum())
        rows += [
            ("bound's slope U", f"{plot.slope:.4g}", None),
            (f"{plot.points_name} above the bound", f"{above} of {len(plot.x)}", None),
        ]
    figures = [] if plot is None else [bound_figure(plot)]
    shown = {"facts": facts, "notices": notices, "tables": found.tables, "rows": rows}
    page = render("measure.html", figures, title=file.name, metric=name, **shown)
    return write(path, page)
