"""The plots of a comparison: learning curves with bands, and every seed's final score."""

from __future__ import annotations

import math
import random
from typing import Any

from polopt.metrics import Comparison, MethodRuns
from polopt.report.figures import Figure, Panel, Trace, band, color, line, stack, text
from polopt.training.estimates import SHARE


def figures(comparison: Comparison) -> list[Figure]:
    found = [_curves(comparison), _finals(comparison)]
    return [f for f in found if f is not None]


def _curves(comparison: Comparison) -> Figure | None:
    traces: list[Trace] = []
    share, score, bands = comparison.unit == SHARE, comparison.score, comparison.bands()
    for i, trials in enumerate(comparison.methods):
        points = bands[trials.name]
        if not points:
            continue
        if all(math.isfinite(b.low) for _, b in points):  # few seeds have none
            traces.append(band([(s, b.low) for s, b in points], [(s, b.high) for s, b in points], color(i), opacity=14))
        traces += [_seed(trials, j, color(i)) for j in range(len(trials.seeds))]
        traces.append(line([(s, b.estimate) for s, b in points], trials.name, color(i), width=2.4, form=_form(share)))
    if not traces:
        return None
    axis = {"tickformat": ".0%", "rangemode": "tozero"} if share else {}
    spec = stack([Panel(f"held-out {score}", traces, axis)], height=420)
    always = ", which holds at any number of seeds, for each step by itself" if comparison.anytime else ""
    kind = "" if comparison.anytime else "t "
    caption = (
        f"Mean over seeds with its {100 * comparison.level:g} % {kind}interval{always}; each thin line is one seed. "
        "The mean ends where the shortest run ends."
    )
    return Figure("curves", f"Held-out {score} while training", caption, spec["data"], spec["layout"], wide=True)


def _form(share: bool) -> str:
    return ".1%" if share else ".1f"


def _seed(trials: MethodRuns, index: int, paint: str) -> Trace:
    return line(
        trials.curves[index],
        trials.name,
        f"{paint}/40",
        width=0.9,
        hoverinfo="skip",
        hovertemplate=None,
        showlegend=False,
    )


def _finals(comparison: Comparison) -> Figure:
    data: list[dict[str, Any]] = []
    scatter, share = random.Random(0), comparison.unit == SHARE
    for i, trials in enumerate(comparison.methods):
        middle = comparison.interval(trials.final)
        row = len(comparison.methods) - 1 - i
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": list(trials.final),
                "y": [row + scatter.uniform(-0.16, 0.16) for _ in trials.final],
                "customdata": [text(s) for s in trials.seeds],
                "marker": {"color": f"{color(i)}/55", "size": 8},
                "hovertemplate": f"seed %{{customdata}}: %{{x:{_form(share)}}}<extra></extra>",
            }
        )
        mean: dict[str, Any] = {
            "type": "scatter",
            "mode": "markers",
            "x": [middle.estimate],
            "y": [row + 0.32],
            "marker": {"color": color(i), "size": 11, "symbol": "diamond"},
            "hovertemplate": f"mean %{{x:{_form(share)}}}<extra></extra>",
        }
        if math.isfinite(middle.low):
            mean["error_x"] = {
                "symmetric": False,
                "array": [middle.high - middle.estimate],
                "arrayminus": [middle.estimate - middle.low],
                "color": color(i),
                "thickness": 2,
                "width": 0,
            }
        data.append(mean)
    names = [text(m.name) for m in reversed(comparison.methods)]
    layout = {
        "height": 110 + 64 * len(names),
        "xaxis": {"tickformat": ".0%"} if share else {},
        "yaxis": {
            "tickvals": list(range(len(names))),
            "ticktext": names,
            "range": [-0.5, len(names) - 0.3],
            "automargin": True,
            "showgrid": False,
        },
        "hovermode": "closest",
        "showlegend": False,
    }
    caption = f"One dot for each seed's final held-out {comparison.score}; above them the mean with its interval."
    return Figure("finals", "Where each seed ended", caption, data, layout, wide=True)
