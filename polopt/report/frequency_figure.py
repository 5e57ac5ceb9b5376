"""The plot of a control policy's return over the number of actions after each look at the state."""

from __future__ import annotations

from polopt.report.figures import Figure, interval_bars
from polopt.report.run import RunData, rate


def frequency(run: RunData) -> Figure | None:
    """Plots the mean return by length of the open-loop sequences of the last full evaluation; None without any."""
    found = [evaluation for evaluation in run.evaluations if isinstance(evaluation.get("frequency"), dict)]
    if not found:
        return None
    measured = found[-1]["frequency"]
    known = [
        (int(length), value)
        for length, one in measured["lengths"].items()
        if (value := rate(one, "return")) is not None
    ]
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": "mean return",
            "x": [length for length, _ in known],
            "y": [value[0] for _, value in known],
            "error_y": interval_bars([value for _, value in known]),
            "line": {"color": "@accent", "width": 2},
            "hovertemplate": "%{x} actions: %{y:.4g}<extra></extra>",
        }
    ]
    layout = {
        "height": 340,
        "xaxis": {"title": {"text": "actions after each look at the state"}},
        "yaxis": {"title": {"text": "mean return"}},
        "hovermode": "closest",
        "showlegend": False,
    }
    caption = (
        "Mean return of the policy where it takes so many actions in turn, open loop, with 95 % intervals. "
        f"Frequency-averaged score: {measured['average']:.3f}."
    )
    return Figure("frequency", "How often must it look?", caption, data, layout, wide=True)
