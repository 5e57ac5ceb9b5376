"""Plots as plain plotly data: stacked panels over the training step, bands, heat maps.

Colours are names such as "@accent", "@accent/20" (20 % opaque), which the page's script turns into the light or dark
palette. Any text of a run goes through `text`, since plotly interprets some HTML in labels.
"""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from polopt.metrics import Interval

Points = Sequence[tuple[float, float]]
Trace = dict[str, Any]

LIMIT = 400  # points of a line and columns of a heat map: more than a screen can show
SERIES = ("@accent", "@second", "@third", "@fourth", "@fifth", "@sixth")


@dataclasses.dataclass(frozen=True)
class Panel:
    """One strip of a figure with its own y axis."""

    label: str
    traces: list[Trace]
    axis: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Figure:
    """A plot, with the question that it answers (`title`) and how to read it (`caption`)."""

    name: str
    title: str
    caption: str
    data: list[Trace]
    layout: dict[str, Any]
    wide: bool = False

    @property
    def height(self) -> int:
        return int(self.layout["height"])

    def spec(self) -> dict[str, Any]:
        return {"data": self.data, "layout": self.layout}


def text(value: Any) -> str:
    """Escapes a run's text for plotly's labels."""
    return html.escape(str(value))


def interval_bars(rates: Sequence[tuple[float, float, float]], **style: Any) -> dict[str, Any]:
    """Returns the error bars of estimates with the low and high ends of their intervals."""
    bars = {"array": [high - at for at, _, high in rates], "arrayminus": [at - low for at, low, _ in rates]}
    return {**bars, "color": "@accent", "thickness": 1.6, "width": 0, **style}


def color(index: int) -> str:
    return SERIES[index % len(SERIES)]


def line(
    points: Points,
    name: str,
    paint: str = "@accent",
    *,
    width: float = 1.8,
    form: str = ".3g",
    peaks: bool = False,
    **more: Any,
) -> Trace:
    """Builds a line of at most `LIMIT` points: the mean of neighbours, or their maximum where `peaks` matter."""
    x, y = thin(points, np.max if peaks else np.mean)
    trace = {
        "type": "scatter",
        "mode": "lines" if len(x) > 1 else "markers",
        "x": x,
        "y": y,
        "name": text(name),
        "line": {"color": paint, "width": width},
        "marker": {"color": paint, "size": 7},
        "hovertemplate": f"%{{y:{form}}}",
    }
    return {**trace, **more}


def band(low: Points, high: Points, paint: str = "@accent", *, opacity: int = 18) -> Trace:
    """Builds the area between two lines with the same steps, as one closed outline."""
    xs, lows = thin(low)
    _, highs = thin(high)
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [*xs, *reversed(xs)],
        "y": [*highs, *reversed(lows)],
        "fill": "toself",
        "fillcolor": f"{paint}/{opacity}",
        "line": {"width": 0, "color": paint},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def forest(
    name: str,
    title: str,
    caption: str,
    rows: Sequence[tuple[str, Interval]],
    *,
    axis: dict[str, Any],
    form: str = ".4g",
    at: float | None = None,
) -> Figure:
    """Builds a plot of estimates with their intervals, one a line, the first on top.

    axis: of the estimates. form: their format. at: a value with a dotted line.
    """
    data: list[Trace] = [
        {
            "type": "scatter",
            "mode": "markers",
            "x": [short(interval.estimate)],
            "y": [len(rows) - 1 - i],
            "marker": {"color": color(i), "size": 10},
            "error_x": {
                "type": "data",
                "symmetric": False,
                "array": [short(interval.high - interval.estimate)],
                "arrayminus": [short(interval.estimate - interval.low)],
                "color": color(i),
                "thickness": 2,
                "width": 0,
            },
            "hovertemplate": f"{text(label)}: %{{x:{form}}}<extra></extra>",
        }
        for i, (label, interval) in enumerate(rows)
    ]
    layout: dict[str, Any] = {
        "height": 110 + 44 * len(rows),
        "xaxis": axis,
        "yaxis": {
            "tickvals": list(range(len(rows))),
            "ticktext": [text(label) for label, _ in reversed(rows)],
            "range": [-0.6, len(rows) - 0.4],
            "automargin": True,
            "showgrid": False,
        },
        "hovermode": "closest",
        "showlegend": False,
        "shapes": [] if at is None else [upright(at)],
    }
    return Figure(name, title, caption, data, layout)


def upright(x: float) -> dict[str, Any]:
    """Returns a dotted vertical line."""
    place = {"xref": "x", "yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1}
    return {"type": "line", **place, "line": {"color": "@quiet", "dash": "dot", "width": 1.2}}


def thin(points: Points, summary: Callable[..., Any] = np.mean) -> tuple[list[float], list[float]]:
    """Reduces points to at most `LIMIT`, one for each of as many equal runs of neighbours."""
    values = np.array(points, float).reshape(-1, 2)
    if len(values) > LIMIT:
        chunks = np.array_split(values, LIMIT)
        values = np.array([(chunk[:, 0].mean(), summary(chunk[:, 1])) for chunk in chunks])
    return [short(x) for x in values[:, 0]], [short(y) for y in values[:, 1]]


def short(value: float) -> float:
    return float(f"{value:.5g}")


def stack(panels: Sequence[Panel], *, height: int, stages: Sequence[tuple[str, float, float]] = ()) -> dict[str, Any]:
    """Stacks panels over one step axis, as `data` and `layout`; every second stage of the run is shaded."""
    gap = 0.16 / (len(panels) - 1) if len(panels) > 1 else 0.0
    size = (1 - gap * (len(panels) - 1)) / len(panels)
    data: list[Trace] = []
    layout: dict[str, Any] = {"height": height, "annotations": [], "shapes": _shading(stages)}
    for i, panel in enumerate(panels):
        suffix = "" if i == 0 else str(i + 1)
        top = 1 - i * (size + gap)
        layout[f"yaxis{suffix}"] = {
            "domain": [max(top - size, 0.0), top],
            "nticks": 7 - len(panels),
            **panel.axis,
        }
        layout["annotations"].append(_label(panel.label, top))
        # A single line of a panel needs no legend: the panel's label names it.
        named = sum(t.get("showlegend", True) for t in panel.traces) > 1
        data += [
            {
                **trace,
                "xaxis": "x",
                "yaxis": f"y{suffix}",
                "showlegend": named and trace.get("showlegend", True),
            }
            for trace in panel.traces
        ]
    layout["xaxis"] = {"anchor": f"y{suffix}", "title": {"text": "step"}}
    layout["hovermode"] = "x unified"
    layout["hoversubplots"] = "axis"
    layout["showlegend"] = any(t["showlegend"] for t in data)
    return {"data": data, "layout": layout}


def _label(label: str, top: float) -> dict[str, Any]:
    place = {"x": 0, "xref": "paper", "xanchor": "left", "y": top, "yref": "paper", "yanchor": "bottom"}
    return {**place, "text": label, "showarrow": False, "font": {"color": "@quiet", "size": 12}}


def _shading(stages: Sequence[tuple[str, float, float]]) -> list[dict[str, Any]]:
    """Returns rectangles that tint every second stage; none for a single stage."""
    return [
        {
            "type": "rect",
            "xref": "x",
            "yref": "paper",
            "x0": first - 0.5,
            "x1": last + 0.5,
            "y0": 0,
            "y1": 1,
            "line": {"width": 0},
            "layer": "below",
            "fillcolor": "@shade",
        }
        for i, (_, first, last) in enumerate(stages)
        if len(stages) > 1 and i % 2 == 0
    ]


def name_stages(stages: Sequence[tuple[str, float, float]]) -> list[dict[str, Any]]:
    """Returns annotations with the stages' names along the top of the plot."""
    return [
        {
            "x": (first + last) / 2,
            "y": 0.99,
            "yref": "paper",
            "yanchor": "top",
            "text": text(name),
            "showarrow": False,
            "font": {"color": "@quiet", "size": 11},
        }
        for name, first, last in stages
        if len(stages) > 1
    ]


def heat(columns: Sequence[tuple[float, Sequence[float], Sequence[float]]], *, length: float) -> Trace:
    """Builds a heat map of fractions per column from (step, bin edges, counts) of each, on one common set of bins.

    Where edges differ, a bin's count is spread evenly over the common bins that it covers. `length` is the colour
    scale's, as a share of the figure.
    """
    common = columns[0][1]
    if any(list(edges) != list(common) for _, edges, _ in columns):
        low, high = min(e[0] for _, e, _ in columns), max(e[-1] for _, e, _ in columns)
        common = list(np.linspace(low, high, 25))
    chunks = np.array_split(np.arange(len(columns)), min(LIMIT, len(columns)))
    shares = []
    for chunk in chunks:
        counts = sum(_rebin(columns[i][1], columns[i][2], common) for i in chunk)
        shares.append(counts / max(float(np.sum(counts)), 1e-12))
    return {
        "type": "heatmap",
        "x": [short(float(np.mean([columns[i][0] for i in chunk]))) for chunk in chunks],
        "y": [short(float(m)) for m in (np.array(common[1:]) + np.array(common[:-1])) / 2],
        "z": [[short(float(s)) for s in row] for row in np.array(shares).T],
        "colorscale": [[0, "@plot"], [0.25, "@accent/35"], [1, "@accent"]],
        "colorbar": {
            "thickness": 8,
            "outlinewidth": 0,
            "tickformat": ".0%",
            "y": 0,
            "yanchor": "bottom",
            "len": length,
            "nticks": 4,
        },
        "hovertemplate": "step %{x}, reward %{y:.2f}: %{z:.1%}<extra></extra>",
        "zmin": 0,
    }


def _rebin(edges: Sequence[float], counts: Sequence[float], common: Sequence[float]) -> np.ndarray:
    if list(edges) == list(common):
        return np.asarray(counts, float)
    cumulative = np.concatenate([[0.0], np.cumsum(np.asarray(counts, float))])
    return np.diff(np.interp(common, edges, cumulative))
