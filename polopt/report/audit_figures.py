"""The plots of an audit of preference pairs; a quantity that is not known has no plot."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from polopt.metrics import Interval
from polopt.report.figures import Figure, Panel, Trace, forest, line, short, stack, text, upright
from polopt.training.auditing import FileAudit

SHARE_AXIS = {"tickformat": ".0%", "range": [-0.02, 1.02]}
BINS = 40


def figures(audit: FileAudit) -> list[Figure]:
    found = [_lengths(audit), _biases(audit), _margins(audit), _reach(audit), _agreement(audit), _discretion(audit)]
    return [figure for figure in found if figure is not None]


def _lengths(audit: FileAudit) -> Figure:
    gaps = [len(row.chosen) - len(row.rejected) for row in audit.rows]
    bars = histogram([("pairs", "@accent", gaps)])
    layout = {**bar_layout("characters that the preferred answer is longer"), "shapes": [upright(0.0)]}
    caption = "Numbers of pairs. Of a file without length bias the bars left and right of 0 weigh the same."
    return Figure("lengths", "Is the longer answer preferred?", caption, bars, layout)


def _biases(audit: FileAudit) -> Figure | None:
    found = audit.found
    rows = [
        ("longer preferred", found.longer_chosen),
        ("shown first preferred", found.first_chosen),
        ("labels wrong", found.label_noise),
    ]
    known = [(name, interval) for name, interval in rows if interval is not None]
    caption = "Share of pairs with its interval; a preference for length or place is none at the dotted 50 %."
    return share_forest("biases", "Biases and wrong labels", caption, known, at=0.5) if known else None


def _margins(audit: FileAudit) -> Figure | None:
    if audit.flips is None:
        return None
    margins, left = audit.flips.measured.rows["reference_margin"], set(audit.flips.left_wrong)
    here = np.array([place in left for place in audit.flips.lines])
    groups = [("ranked right after training", "@accent", margins[~here]), ("left wrong", "@second", margins[here])]
    kind = "sums" if audit.flips.criterion.ranks_by == "sum" else "means over tokens"
    layout = bar_layout(f"log-probability of the preferred answer minus the other's, {kind}, nats")
    layout |= {"shapes": [upright(0.0)], "showlegend": True, "barmode": "stack"}
    caption = (
        f"Numbers of pairs by the reference's ranking, right of 0 correct. Left wrong are those that "
        f"{audit.flips.criterion.method} does not turn where each pair has the loss {audit.flips.target_loss:g}."
    )
    return Figure("margins", "How the reference ranks the pairs", caption, histogram(groups), layout)


def _reach(audit: FileAudit) -> Figure | None:
    """The share of pairs that are ranked right where each has a loss: of those that turn at that loss or above."""
    if audit.flips is None:
        return None
    flips = audit.flips
    losses = np.nan_to_num(flips.measured.rows["flip_loss"], nan=-np.inf)
    known = np.sort(losses[np.isfinite(losses)])[::-1]
    top = max([flips.target_loss, *known.tolist()]) * 1.15
    grid = np.unique(np.concatenate([np.linspace(0, top, 200), known, np.nextafter(known, np.inf), [0.0]]))
    points = [(float(x), float((losses >= x).mean())) for x in grid]
    spec = stack([Panel("pairs ranked right", [line(points, "right", form=".1%")], SHARE_AXIS)], height=320)
    spec["layout"]["xaxis"] = {"anchor": "y", "title": {"text": "loss of every pair"}, "range": [0, top]}
    spec["layout"]["shapes"] = [upright(flips.target_loss)]
    caption = (
        f"If training with {flips.criterion.method} brings every pair to one loss, so many are ranked right. The "
        "dotted line is the target loss. Pairs that no loss turns are counted as wrong."
    )
    return Figure("reach", "What the loss can turn", caption, spec["data"], spec["layout"])


def _agreement(audit: FileAudit) -> Figure | None:
    found = audit.agreement
    if found is None or not found.with_others:
        return None
    caption = "Share of the others' labels of the same pairs that are the annotator's own; 50 % is chance."
    rows = list(found.with_others.items())
    return share_forest("agreement", "Which annotators agree with the others?", caption, rows, at=0.5)


def _discretion(audit: FileAudit) -> Figure | None:
    if audit.discretion is None:
        return None
    begin = "arbitrariness of "
    known = [
        (name.removeprefix(begin), interval)
        for name, interval in audit.discretion.intervals.items()
        if name.startswith(begin)
    ]
    caption = "Share of the pairs on which all principles agree whose label goes against them, with its interval."
    return share_forest("discretion", "Who goes against the principles?", caption, known, at=None) if known else None


def share_forest(
    name: str, title: str, caption: str, rows: Sequence[tuple[str, Interval]], *, at: float | None
) -> Figure:
    """Builds a plot of intervals of shares, one a line, the first on top. at: a share with a dotted line."""
    within = [
        (label, dataclasses.replace(found, low=max(found.low, 0.0), high=min(found.high, 1.0))) for label, found in rows
    ]
    return forest(name, title, caption, within, axis=SHARE_AXIS, form=".1%", at=at)


def histogram(groups: Sequence[tuple[str, str, Sequence[float] | np.ndarray]]) -> list[Trace]:
    """Builds bars of counts on one set of bins. groups: of each, its name, colour and values."""
    values = np.concatenate([np.asarray(x, float) for _, _, x in groups])
    low, high = float(values.min()), float(values.max())
    edges = np.linspace(low, high, BINS + 1) if high > low else np.array([low - 0.5, low + 0.5])
    middle = [short(float(x)) for x in (edges[1:] + edges[:-1]) / 2]
    return [
        {
            "type": "bar",
            "x": middle,
            "y": np.histogram(np.asarray(x, float), edges)[0].tolist(),
            "width": [short(float(w)) for w in np.diff(edges)],
            "name": text(name),
            "marker": {"color": paint, "line": {"width": 0}},
            "hovertemplate": "%{x:.3g}: %{y}",
        }
        for name, paint, x in groups
    ]


def bar_layout(label: str) -> dict[str, Any]:
    return {
        "height": 320,
        "bargap": 0,
        "xaxis": {"title": {"text": label}},
        "yaxis": {"rangemode": "tozero"},
        "hovermode": "closest",
        "showlegend": False,
    }
