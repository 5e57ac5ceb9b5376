"""The plot of rules beside a control policy."""

from __future__ import annotations

from polopt.report.figures import Figure, interval_bars, text
from polopt.report.run import RunData, rate


def rules(run: RunData) -> Figure | None:
    """Plots the mean return of the policy and of the rules that the last full evaluation played; None without rules."""
    found = [evaluation for evaluation in run.evaluations if isinstance(evaluation.get("rules"), dict)]
    if not found:
        return None
    measured = {"policy": rate(found[-1])} | {str(n): rate(rule) for n, rule in found[-1]["rules"].items()}
    known = [(text(name), value) for name, value in measured.items() if value is not None]
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "mean return",
            "x": [value[0] for _, value in known],
            "y": [name for name, _ in known],
            "error_x": interval_bars([value for _, value in known]),
            "marker": {"color": "@accent", "size": 11},
            "hovertemplate": "%{y}: %{x:.4g}<extra></extra>",
        }
    ]
    layout = {
        "height": 110 + 44 * len(known),
        "xaxis": {"title": {"text": "mean return"}},
        "yaxis": {"autorange": "reversed", "type": "category", "dtick": 1, "automargin": True, "showgrid": True},
        "hovermode": "closest",
        "showlegend": False,
    }
    caption = "Mean return of the policy and of rules, on as many episodes, with 95 % intervals."
    return Figure("rules", "Is it better than rules?", caption, data, layout, wide=True)
