"""The table and the curves of benchmarks/preference_methods.py."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import table
from polopt.metrics import Comparison, MethodRuns, t_interval

HEAD = (
    "A transformer of about 100,000 weights; {pairs} pairs of its own first answers with noisy labels, for all; "
    "{steps} steps of {rows} rows, {seeds} seeds, each method at its best of the step sizes {step_sizes} by the win "
    "rate at the end on {trials} other seeds. What comes before a method's own stage (a DPO policy, say) is half as "
    "long, and comes on top. Methods that sample are told the rewards of a model that was fitted to the pairs. Win "
    "rate: of the policy's answers against those of the policy that it began with, by the true preference; true "
    "reward: their mean, of standard deviation {spread:g} over all answers; KL in nats an answer. These three are "
    "exact sums over all answers to {prompts} held-out prompts. Ranking accuracy: of held-out pairs, those whose "
    "better answer has the higher log-ratio to the first policy. Means with 95 % intervals (Student's t). "
    "Difference: of the win rate at the end to that of `{yardstick}`, in points, paired by seed; a star where it "
    "stays after Holm's correction. Peak: the best win rate of a run, and the KL there. Lost beyond: from the peak "
    "to the end at the largest step size, on the other seeds."
)


def compared(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the difference of each method's win rate to the yardstick's, by seed, with Student's interval, and
    whether it stays after Holm's correction."""
    setting = data["setting"]
    ordered = sorted(data["rows"], key=lambda row: row["name"] != setting["yardstick"])
    runs = [MethodRuns(r["name"], setting["seeds"], [curve[-1]["win_rate"] for curve in r["curves"]]) for r in ordered]
    return {row.name: dataclasses.asdict(row) for row in Comparison(runs).table()}


def markdown(data: dict[str, Any]) -> str:
    """The table for people."""
    it, rows = data["about"], data["rows"]
    differences = compared(data)
    setting = {**data["setting"], **{name: len(data["setting"][name]) for name in ("seeds", "trials")}}
    setting["step_sizes"] = ", ".join(f"{size:g}" for size in setting["step_sizes"])
    lines = [
        "# Methods of preferences, where the true preference is known",
        "",
        f"{it['date']}, commit {it['commit']}, `{it['command']}`.",
        "",
        table.machine(it),
        "",
        HEAD.format(**setting),
        *(["", data["note"]] if data.get("note") else []),
        "",
        "|method|step size|win rate, %|to dpo, points|true reward|KL|ranking accuracy, %|peak, %|KL there|lost beyond|",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in sorted(rows, key=lambda r: -np.mean([curve[-1]["win_rate"] for curve in r["curves"]])):
        ends = {key: [curve[-1][key] for curve in row["curves"]] for key in row["curves"][0][-1]}
        peaks = [max(curve, key=lambda point: point["win_rate"]) for curve in row["curves"]]
        lost = [max(p["win_rate"] for p in curve) - curve[-1]["win_rate"] for curve in row["beyond"]]
        found = differences[row["name"]]
        gap = found["difference"]
        cells = [
            row["name"],
            f"{row['step_size']:g}",
            _interval(ends["win_rate"], 100),
            "" if gap is None else f"{_ends(gap, 100)}{' *' if found['significant'] else ''}",
            _interval(ends["true_reward"], 1),
            f"{np.mean(ends['kl']):.2f}",
            _interval(ends["accuracy"], 100),
            f"{100 * np.mean([p['win_rate'] for p in peaks]):.1f}",
            f"{np.mean([p['kl'] for p in peaks]):.2f}",
            f"{100 * np.mean(lost):.1f}",
        ]
        lines.append(f"|{'|'.join(cells)}|")
    if data["failed"]:
        lines += ["", "Did not finish:", "", *(f"- {name}: {why}" for name, why in data["failed"].items())]
    return "\n".join(lines) + "\n"


def _interval(values: Sequence[float], unit: float) -> str:
    """Formats a mean with its interval; that of rates, in percent, is cut to what a rate can be."""
    found = t_interval(np.asarray(values) * unit)
    low, high = (found.low, found.high) if unit == 1 else (max(found.low, 0.0), min(found.high, unit))
    digits = 2 if unit == 1 else 1
    return f"{found.estimate:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def _ends(gap: dict[str, float], unit: float) -> str:
    return f"{gap['estimate'] * unit:+.1f} ({gap['low'] * unit:+.1f} to {gap['high'] * unit:+.1f})"


def curves(data: dict[str, Any]) -> str:
    """Returns every evaluation, as rows that `polopt measure online-offline-gap` reads."""
    lines, setting = [], data["setting"]
    for row in data["rows"]:
        for kind, seeds in (("curves", setting["seeds"]), ("beyond", setting["trials"])):
            size = row["step_size"] if kind == "curves" else max(setting["step_sizes"])
            for run, points in zip(seeds, row[kind], strict=True):
                lines += [{"source": row["name"], "run": f"{size:g}, seed {run}", **point} for point in points]
    return "".join(json.dumps(line) + "\n" for line in lines)


# Methods of the figure, one of each kind, and those that show where it ends.
DRAWN = ("dpo", "ipo", "simpo", "tgdpo", "online-dpo", "rloo", "drpo-reset", "aligndistil")


def figure(data: dict[str, Any]) -> str:
    """Returns a page with the true win rate over the KL of some methods as they train, means over seeds by step: at
    their own step size, and at the largest."""
    from plotly.colors import qualitative
    from plotly.subplots import make_subplots

    titles = ("each at its own step size, five seeds", "at the largest step size, two other seeds")
    plot = make_subplots(1, 2, shared_yaxes=True, subplot_titles=titles, horizontal_spacing=0.03)
    rows = {row["name"]: row for row in data["rows"]}
    for name, color in zip((n for n in DRAWN if n in rows), qualitative.D3, strict=False):
        for column, kind in enumerate(("curves", "beyond"), start=1):
            kl, won = (
                np.mean([[point[quantity] for point in points] for points in rows[name][kind]], axis=0)
                for quantity in ("kl", "win_rate")
            )
            look = {"mode": "lines+markers", "line": {"color": color, "width": 2}, "marker": {"size": 5}}
            plot.add_scatter(
                x=kl, y=won, name=name, legendgroup=name, showlegend=column == 1, row=1, col=column, **look
            )
    plot.update_layout(template="plotly_white", width=1080, height=470, margin={"l": 60, "r": 20, "t": 40, "b": 50})
    plot.update_xaxes(title="KL to the first policy, nats an answer")
    plot.update_yaxes(tickformat=".0%")
    plot.update_yaxes(title="true win rate against the first policy", col=1)
    page: str = plot.to_html(include_plotlyjs=True, full_html=True, config={"displayModeBar": False})
    return page
