"""The page of a measured file, and the plot of a metric's bound."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polopt.metrics import (
    BoundPlot,
    Interval,
    LoggedDecisions,
    Measured,
    Metric,
    MetricError,
    PolicySelection,
)
from polopt.report.figures import Figure, forest, line, short, text
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


def log_figures(log: LoggedDecisions) -> list[Figure]:
    """Draws what the importance weights leave of a log: at each step, and how unequal whole episodes are."""
    weights = log.log_weights()
    top = weights.max(0)
    shifted = np.exp(weights - np.where(np.isfinite(top), top, 0.0))
    total = shifted.sum(0)
    size = np.divide(total**2, (shifted**2).sum(0), out=np.zeros_like(total), where=total > 0) / len(log)
    steps = line(list(zip(range(1, len(size) + 1), size.tolist(), strict=True)), "left", form=".1%")
    share = np.sort(shifted[:, -1])[::-1].cumsum() / (total[-1] or 1.0)
    place = np.arange(1, len(log) + 1) / len(log)
    curve = line(list(zip(place.tolist(), share.tolist(), strict=True)), "of all weight", form=".1%", peaks=True)
    axis = {"tickformat": ".0%", "range": [-0.02, 1.02]}
    base = {"height": 300, "showlegend": False, "hovermode": "x"}
    return [
        Figure(
            "steps",
            "How much of the log is left?",
            "Effective sample size over the number of episodes, by the weights of all decisions up to each.",
            [steps],
            {**base, "xaxis": {"title": {"text": "decision"}}, "yaxis": axis},
        ),
        Figure(
            "shares",
            "How few episodes decide?",
            "Share of all weight in the heaviest episodes. Equal weights would be a straight line.",
            [curve],
            {**base, "xaxis": {**axis, "title": {"text": "share of the episodes"}}, "yaxis": axis},
        ),
    ]


def write_policies(
    metric: Metric,
    name: str,
    found: Mapping[str, Measured],
    refused: Mapping[str, str],
    selection: PolicySelection,
    file: Path,
    path: Path,
) -> Path:
    """Writes the comparison of several target policies on one log as one self-contained page; returns its path.

    found, refused: the results, and the reasons where there is none, by the policy's name.
    """
    candidates = selection.candidates
    rows = [(one.name, f"{one.value.estimate:.4g}", _pair(one.value)) for one in candidates]
    rows += [(f"{one.name}, more than the log", f"{one.gain.estimate:+.4g}", _pair(one.gain)) for one in candidates]
    notices = [f"{policy} cannot be estimated: {why}." for policy, why in refused.items()]
    notices += [f"{policy}: {sentence}." for policy, result in found.items() for sentence in result.cautions]
    logged = next(iter(found.values())).values["logged"]
    figure = forest(
        "bound",
        "Which policy is better than the one that wrote the log?",
        "Estimates with their intervals. The dotted line is the mean return of the log.",
        [(one.name, one.value) for one in candidates],
        axis={"title": {"text": "value"}},
        at=logged,
    )
    facts = [("settings", repr(metric)), ("chosen", selection.chosen or "none: no policy is shown to be better")]
    shown = {"facts": facts, "notices": notices, "tables": (), "rows": rows}
    page = render("measure.html", [figure], title=file.name, metric=name, **shown)
    return write(path, page)


def _pair(interval: Interval | None) -> tuple[str, str] | None:
    return None if interval is None else (f"{interval.low:.4g}", f"{interval.high:.4g}")


def write_measured(metric: Metric, name: str, data: Any, found: Measured, file: Path, path: Path) -> Path:
    """Writes the numbers of a measured file, and the plot of the metric's bound if it has one, as one self-contained
    page, and returns the page's path.

    name: of the metric. data, found: what was measured, and the result.
    """
    plot = metric.plot(data)
    rows = [(key, f"{value:.4g}", _pair(found.intervals.get(key))) for key, value in found.values.items()]
    facts = [("settings", repr(metric))]
    notices = [f"{sentence[:1].upper()}{sentence[1:]}." for sentence in found.cautions]
    if plot is not None:
        above = int((plot.y > plot.bound(plot.x) + 1e-9).sum())
        rows += [
            ("bound's slope U", f"{plot.slope:.4g}", None),
            (f"{plot.points_name} above the bound", f"{above} of {len(plot.x)}", None),
        ]
    figures = log_figures(data) if isinstance(data, LoggedDecisions) else []
    figures += [] if plot is None else [bound_figure(plot)]
    shown = {"facts": facts, "notices": notices, "tables": found.tables, "rows": rows}
    page = render("measure.html", figures, title=file.name, metric=name, **shown)
    return write(path, page)
