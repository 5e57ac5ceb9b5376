"""The page of an audit of demonstrations or logged transitions."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from polopt.metrics import Interval, Measured
from polopt.report.audit_figures import bar_layout, histogram, share_forest
from polopt.report.figures import Figure
from polopt.report.page import render, write
from polopt.training.transition_audit import METRICS, TransitionAudit

# Rows, and groups of episodes, that are listed.
LISTED = 40
SHARES = ("state similarity", "neighbours", "reward sparsity", "behaviour entropy")
TITLES = {"demos": "What these demonstrations can teach", "logs": "What this log can teach"}
OVERLAP = {
    "estimate": "value of the target policy",
    "logged": "mean return of the log",
    "effective_sample_size": "effective sample size, episodes",
    "largest_weight": "largest weight",
    "largest_share": "its share of all weight",
    "mean_weight": "mean weight, 1 expected",
}


def write_transition_audit(audit: TransitionAudit, file: Path, path: Path) -> Path:
    """Writes the audit of a file as one self-contained page, and returns the page's path.

    Raises:
        ModuleNotFoundError: jinja2 or plotly is not installed.
    """
    found = _figures(audit)
    page = render(
        "transitions.html",
        found,
        title=file.name,
        command=f"polopt audit {audit.kind}",
        facts=facts(audit),
        notices=[f"{sentence[:1].upper()}{sentence[1:]}." for sentence in audit.cautions],
        question=TITLES[audit.kind],
        metric=METRICS[audit.kind],
        numbers=numbers(audit.measured),
        overlap=[(OVERLAP.get(n, n), *rest) for n, *rest in numbers(audit.overlap) if n in OVERLAP],
        malformed=list(audit.malformed.items())[:LISTED],
        broken=[text for _, text in list(audit.broken.items())[:LISTED]],
        groups=[
            ("identical episodes", audit.duplicates[:LISTED]),
            ("nearly identical episodes", audit.near_duplicates[:LISTED]),
        ],
        plots=[figure.name for figure in found],
    )
    return write(path, page)


def facts(audit: TransitionAudit) -> list[tuple[str, str]]:
    """Returns the counts of an audit, and their names."""
    counts = [
        ("transitions", len(audit.data)),
        ("episodes", len(audit.data.lengths)),
        ("malformed rows", len(audit.malformed)),
        ("broken episodes", len(audit.broken)),
        ("copies", sum(len(group) - 1 for group in audit.duplicates)),
        ("near-copies", sum(len(group) - 1 for group in audit.near_duplicates)),
    ]
    return [(name, f"{count:,}") for name, count in counts if count or name in ("transitions", "episodes")]


def numbers(found: Measured | None) -> list[tuple[str, str, str]]:
    """Returns name, value and interval of each number of a metric."""
    if found is None:
        return []
    return [(name, f"{value:.4g}", _ends(found.intervals.get(name))) for name, value in found.values.items()]


def _ends(interval: Interval | None) -> str:
    if interval is None or not np.isfinite([interval.low, interval.high]).all():
        return ""
    return f"{interval.low:.4g} – {interval.high:.4g}"


def _figures(audit: TransitionAudit) -> list[Figure]:
    found = [_bars("lengths", "How long are the episodes?", "decisions", audit.data.lengths.astype(float))]
    data = audit.data
    if data.reward is not None:
        returns = data.means(data.reward) * data.lengths
        found.append(_bars("returns", "What do the episodes earn?", "undiscounted return", returns))
    if audit.kind == "demos" and audit.measured is not None:
        each = np.concatenate(list(audit.measured.rows.values()))
        if np.isfinite(each).any():
            label = "action variance at states that others pass, in squared standard deviations"
            found.append(_bars("variance", "Which demonstrations differ?", label, each[np.isfinite(each)]))
    shares = [] if audit.measured is None else list(audit.measured.intervals.items())
    shares = [(name, interval) for name, interval in shares if name.endswith(SHARES)]
    if shares:
        caption = "Means over episodes with their intervals."
        found.append(share_forest("shares", "Shares", caption, shares, at=None))
    return found


def _bars(name: str, title: str, label: str, values: np.ndarray) -> Figure:
    caption = "Numbers of episodes."
    return Figure(name, title, caption, histogram([("episodes", "@accent", values)]), bar_layout(label))
