"""The plots of one run, in reading order; a quantity that was not measured has no plot."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from polopt.report.figures import (
    Figure,
    Panel,
    Trace,
    band,
    color,
    heat,
    interval_bars,
    line,
    name_stages,
    stack,
    text,
)
from polopt.report.run import Record, RunData, number, rate
from polopt.training import estimates

PERCENT = {"tickformat": ".2~%"}
# Numbers far below 1, in a format short enough for the margin: 1.5e-13.
SMALL = {"tickformat": ".2~g", "exponentformat": "e", "automargin": True}
SHARE = {"tickformat": ".0%", "range": [0, 1.04]}


def run_figures(run: RunData) -> list[Figure]:
    figures = (make(run) for make in FIGURES)
    return [f for f in figures if f is not None]


def figure(run: RunData, name: str, title: str, caption: str, panels: Sequence[Panel]) -> Figure | None:
    """Builds one figure of the panels that have traces; None if none has."""
    shown = [p for p in panels if p.traces]
    if not shown:
        return None
    spec = stack(shown, height=360, stages=run.stages())
    return Figure(name, title, caption, spec["data"], spec["layout"])


def lines(run: RunData, keys: dict[str, str], *, start: int = 0, **style: Any) -> list[Trace]:
    """Builds one line for each measured key, named by its value; colours from the palette's position `start` on."""
    measured = [(name, points) for key, name in keys.items() if (points := run.series(key))]
    return [line(points, name, color(start + i), **style) for i, (name, points) in enumerate(measured)]


def learning_curve(run: RunData) -> Figure | None:
    traces = []
    training = run.series("solved")
    if training:
        traces.append(line(training, "training", "@quiet", width=1, form=".1%"))
    known = [estimates.estimates_of(e) for e in run.evaluations]
    shares = {k for e in known for k, found in e.items() if estimates.unit_of(found) == estimates.SHARE}
    shares |= {k for e in run.evaluations for k in e if k.startswith("pass@")}  # in any format
    if any(known) and not shares:
        return _score_curve(run)
    keys = sorted(shares, key=lambda k: (len(k), k))
    for i, key in enumerate(keys):
        points = _curve(run, key)
        if not points:
            continue
        if len(points) > 1:
            low, high = [(s, r[1]) for s, r in points], [(s, r[2]) for s, r in points]
            traces.append(band(low, high, color(i)))
        traces.append(_held_out(points, f"held-out {key}", color(i)))
    if not traces:
        return None
    stages = run.stages()
    spec = stack([Panel("share solved", traces, {**PERCENT, "rangemode": "tozero"})], height=400, stages=stages)
    spec["layout"]["annotations"] += name_stages(stages)
    return Figure(
        "learning-curve",
        "Does it get better?",
        "Share of problems solved, or of pairs ranked right. The band is the 95 % interval over held-out problems; "
        "the thin line is what the policy solved while it trained, on training problems and at the training "
        "temperature.",
        spec["data"],
        spec["layout"],
        wide=True,
    )


def _score_curve(run: RunData) -> Figure | None:
    """Builds the learning curve of a score that is no fraction of problems."""
    name = next(name for record in run.evaluations for name in estimates.estimates_of(record))
    training, points = run.series(f"{name}/mean"), _curve(run, name)
    traces = [line(training, "training", "@quiet", width=1)] if training else []
    if len(points) > 1:
        traces.append(band([(s, r[1]) for s, r in points], [(s, r[2]) for s, r in points], color(0)))
    if points:
        traces.append(_held_out(points, f"held-out {name}", color(0), form=".4g"))
    if not traces:
        return None
    stages = run.stages()
    spec = stack([Panel(f"mean {name}", traces, {})], height=400, stages=stages)
    spec["layout"]["annotations"] += name_stages(stages)
    return Figure(
        "learning-curve",
        "Does it get better?",
        f"Mean {name}. The band is the 95 % interval over what was held out; the thin line is the mean over what the "
        "policy did while it trained.",
        spec["data"],
        spec["layout"],
        wide=True,
    )


def measures(run: RunData) -> Figure | None:
    """Plots the measures of a solver's solution; None for any other run."""
    if not run.solves or not run.metrics:
        return None
    first, *others = [key for key in run.metrics[-1] if key not in ("step", "unit", "seconds")]
    unit = text(str(run.metrics[-1].get("unit", "")))
    points = [(x, y) for x, y in run.series(first) if y > 0]  # a log axis has no 0, the exact solution
    panels = [Panel(f"{text(first)}, {unit}", [line(points, text(first))] if points else [], {"type": "log", **SMALL})]
    panels += [Panel(text(key), lines(run, {key: text(key)}, start=1)) for key in others]
    caption = "By iteration. The first measure is the distance from an exact solution."
    return figure(run, "learning-curve", "Does it get better?", caption, panels)


def _curve(run: RunData, key: str) -> list[tuple[float, tuple[float, float, float]]]:
    """Returns (step, rate) in order; of two evaluations at one step the later one counts."""
    by_step = {}
    for evaluation in run.evaluations:
        step, value = number(evaluation.get("step")), rate(evaluation, key)
        if step is not None and value is not None:
            by_step[step] = value
    return sorted(by_step.items())


def _held_out(
    points: Sequence[tuple[float, tuple[float, float, float]]], name: str, paint: str, form: str = ".1%"
) -> Trace:
    trace = line([(s, r[0]) for s, r in points], name, paint, width=2.4, form=form)
    if len(points) <= 60:
        trace |= {"mode": "lines+markers"}
    if len(points) == 1:
        _, (estimate, low, high) = points[0]
        trace |= {"error_y": {"array": [high - estimate], "arrayminus": [estimate - low], "color": paint}}
    return trace


def by_kind(rows: Sequence[Record]) -> Figure | None:
    """Plots before against after for every task type; rows as made by `summary.kinds`."""
    if not rows:
        return None
    names = [text(r["kind"]) for r in rows]
    data = []
    for when, paint in (("before", "@quiet"), ("after", "@accent")):
        rates = [r[when] for r in rows]
        known = [(n, r) for n, r in zip(names, rates, strict=True) if r]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": when,
                "x": [r[0] for _, r in known],
                "y": [n for n, _ in known],
                "error_x": interval_bars([r for _, r in known], color=paint),
                "marker": {"color": paint, "size": 11},
                "hovertemplate": "%{y}: %{x:.1%}<extra>" + when + "</extra>",
            }
        )
    layout = {
        "height": 110 + 44 * len(rows),
        "xaxis": {**PERCENT, "rangemode": "tozero"},
        # Without an explicit step, plotly omits names where there are many.
        "yaxis": {"autorange": "reversed", "type": "category", "dtick": 1, "automargin": True, "showgrid": True},
        "hovermode": "closest",
        "showlegend": True,
    }
    caption = "Held-out accuracy before and after, by task type, with 95 % intervals."
    return Figure("by-kind", "Where did it improve?", caption, data, layout, wide=True)


def reward(run: RunData) -> Figure | None:
    mean, spread = run.series("reward/mean"), dict(run.series("reward/std"))
    columns = [c for m in run.metrics if (c := _histogram(m)) is not None]
    traces = [line(mean, "mean reward")] if mean else []
    if mean and all(s in spread for s, _ in mean):
        least, most = _range(columns)
        low = [(s, max(least, m - spread[s])) for s, m in mean]
        high = [(s, min(most, m + spread[s])) for s, m in mean]
        traces.insert(0, band(low, high))
    panels = [Panel("mean, and one standard deviation either side", traces)]
    panels.append(
        Panel("distribution at each step", [heat(columns, length=0.42 if traces else 1.0)] if columns else [])
    )
    caption = "The distribution shows what the mean hides: whether all improve a little, or a few a lot."
    return figure(run, "reward", "What was rewarded?", caption, panels)


def _range(columns: Sequence[tuple[float, list[float], list[float]]]) -> tuple[float, float]:
    """Returns the least and greatest reward of the run, the ends of nonempty bins, which bound a meaningful band."""
    seen = [(edges[i], edges[i + 1]) for _, edges, counts in columns for i, count in enumerate(counts) if count]
    return (min(e[0] for e in seen), max(e[1] for e in seen)) if seen else (-math.inf, math.inf)


def _histogram(record: Record) -> tuple[float, list[float], list[float]] | None:
    step, value = number(record.get("step")), record.get("reward/histogram")
    if step is None or not isinstance(value, dict):
        return None
    edges = [number(e) for e in value.get("edges", ())]
    counts = [number(c) for c in value.get("counts", ())]
    right = len(counts) > 0 and len(edges) == len(counts) + 1
    if not right or None in edges or None in counts:
        return None
    return step, edges, counts  # type: ignore[return-value]


def outcomes(run: RunData) -> Figure | None:
    keys = sorted({k for m in run.metrics for k in m if k.startswith("outcome/") and k != "outcome/mean"})
    if len(keys) < 2:
        return None
    traces = lines(run, {k: k.removeprefix("outcome/") for k in keys[:6]}, form=".1%", width=1.4)
    caption = "Share solved in training, by task type. A flat line at 0 or 1 is a task that teaches nothing."
    return figure(run, "outcomes", "Which tasks are being learned?", caption, [Panel("share solved", traces, SHARE)])


def signal(run: RunData) -> Figure | None:
    traces = lines(run, {"groups/signal": "with an advantage"}, form=".1%")
    mixed = lines(run, {"groups/mixed": "right and wrong"}, start=1, form=".1%")
    for trace in mixed:  # dotted, so that both lines are visible where they coincide, as for most methods
        trace["line"] = {**trace["line"], "dash": "dot"}
    panels = [Panel("share of groups", traces + mixed, SHARE)]
    caption = "Groups without any advantage teach nothing. Credit relative to the group finds it where outcomes differ."
    return figure(run, "signal", "How much of a batch teaches?", caption, panels)


def truth(run: RunData) -> Figure | None:
    if not run.series("signal/true"):
        return None
    rewarded = lines(run, {"outcome/mean": "reward", "signal/true": "truth"}, form=".1%")
    wrong = {
        "verifier/false_positive": "rewarded, of wrong answers",
        "verifier/false_negative": "not rewarded, of right answers",
    }
    panels = [
        Panel("share of answers", rewarded, SHARE),
        Panel("errors", lines(run, wrong, start=2, form=".1%"), SHARE),
    ]
    caption = "A reward that rises while the truth does not is being gamed."
    return figure(run, "truth", "Does the reward mean what it should?", caption, panels)


def entropy(run: RunData) -> Figure | None:
    panels = [Panel("nats per token", lines(run, {"entropy": "entropy"}), {"rangemode": "tozero"})]
    kls = sorted({k for m in run.metrics for k in m if k.startswith("kl/")})
    panels.append(Panel("distance to the reference", lines(run, {k: k for k in kls}, start=1)))
    caption = "How undecided the policy is. A fall to zero early on means that it has stopped exploring."
    return figure(run, "entropy", "Is it still exploring?", caption, panels)


def ratio(run: RunData) -> Figure | None:
    moved = lines(run, {"ratio/mean": "mean ratio"}) + lines(run, {"ratio/max": "largest ratio"}, start=1, peaks=True)
    clipped = lines(run, {"clip_fraction": "clipped"}, start=2, form=".2%")
    panels = [
        Panel("probability ratio, new over old", moved),
        Panel(f"share of {run.decision}s clipped", clipped, {**PERCENT, "rangemode": "tozero"}),
    ]
    caption = "How far an update moves the policy. At ratio 1 it has not moved since sampling."
    return figure(run, "ratio", "How big are the steps?", caption, panels)


def length(run: RunData) -> Figure | None:
    lengths = lines(run, {"length/mean": "mean length"}) + lines(
        run, {"length/max": "longest"}, start=1, peaks=True, form=".0f"
    )
    cut = lines(run, {"truncated": "cut off"}, start=2, form=".1%")
    whole, title = "completion", "How long are the answers?"
    caption = "An answer cut off at the limit cannot be right: much of that and the limit is too low."
    if run.decision == "decision":
        whole, title = "episode", "How long are the episodes?"
        caption = "Those that end at the time limit go on, for a critic, from its own value."
    panels = [
        Panel(f"{run.decision}s per {whole}", lengths, {"rangemode": "tozero"}),
        Panel("share cut off at the limit", cut, {**PERCENT, "rangemode": "tozero"}),
    ]
    return figure(run, "length", title, caption, panels)


def gradient(run: RunData) -> Figure | None:
    noise = [(s, n) for s, n in run.series("grad_noise") if n > 0]
    panels = [
        Panel("gradient norm", lines(run, {"grad_norm": "gradient norm"}), {"rangemode": "tozero"}),
        Panel(
            "noise scale",
            # Points, since a line would interpolate over steps without an estimate.
            [line(noise, "noise scale", color(1), mode="markers", marker={"color": color(1), "size": 4})]
            if noise
            else [],
            {"type": "log", "dtick": 1},
        ),
    ]
    caption = "Batches well below the noise scale gain from being larger; batches above it mostly cost time."
    return figure(run, "gradient", "Is the gradient sound?", caption, panels)


def mismatch(run: RunData) -> Figure | None:
    gaps = {key: [(s, v) for s, v in run.series(f"mismatch/{key}") if v > 0] for key in ("mean", "max")}
    traces = [
        line(points, name, color(i), peaks=name == "max") for i, (name, points) in enumerate(gaps.items()) if points
    ]
    panels = [
        Panel("gap in log-probability, nats", traces, {**SMALL, "type": "log", "dtick": 1}),
        Panel("KL (sampler || learner)", lines(run, {"mismatch/kl": "KL"}, start=2), SMALL),
        Panel(
            "effective sample size",
            lines(run, {"mismatch/ess": "effective sample size"}, start=3, form=".1%"),
            SHARE,
        ),
    ]
    caption = f"Sampler and learner should agree on every {run.decision}. A growing gap biases the gradient."
    return figure(run, "mismatch", "Do sampler and learner agree?", caption, panels)


def loss(run: RunData) -> Figure | None:
    panels = [
        Panel("loss", lines(run, {"loss": "loss"})),
        Panel(
            "learning rate",
            lines(run, {"lr": "learning rate"}, start=1),
            {**SMALL, "rangemode": "tozero"},
        ),
    ]
    caption = "In policy optimisation the loss need not fall while the policy gets better."
    return figure(run, "loss", "Loss and learning rate", caption, panels)


def time(run: RunData) -> Figure | None:
    parts = {f"seconds/{k}": k for k in ("rollout", "reward", "learn")}
    areas = [
        {
            **trace,
            "stackgroup": "time",
            "fillcolor": f"{trace['line']['color']}/45",
            "line": {**trace["line"], "width": 0.8},
        }
        for trace in lines(run, parts, form=".2f")
    ]
    panels = [
        Panel(
            f"{run.decision}s per second",
            lines(run, {"tokens_per_second": f"{run.decision}s per second"}, start=3),
            {"rangemode": "tozero"},
        ),
        Panel("seconds per step", areas, {"rangemode": "tozero"}),
    ]
    caption = "Where a step's time goes: sampling, scoring what was sampled, learning from it."
    return figure(run, "time", "Where does the time go?", caption, panels)


FIGURES: tuple[Callable[[RunData], Figure | None], ...] = (
    reward,
    truth,
    signal,
    outcomes,
    entropy,
    ratio,
    length,
    gradient,
    mismatch,
    loss,
    time,
)
