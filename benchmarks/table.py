"""From raw measurements to the table: medians over steps, ratios over repeats, distances to the floor."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.floors import Machine, Shape, floors

PACKAGES = ("torch", "transformers", "trl", "accelerate", "reasoning_gym", "numpy")
MEGA = 2**20


def about(root: Path, threads: int, module: str = "language") -> dict[str, Any]:
    """Where, when and with what."""

    def git(*arguments: str) -> str:
        try:
            return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True).stdout.strip()
        except OSError:  # a machine without git
            return ""

    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join([f"python -m benchmarks.{module}", *sys.argv[1:]]),
        "commit": git("rev-parse", "--short", "HEAD") + (" + changes" if git("status", "--porcelain") else ""),
        "machine": {"cpu": _cpu(), "cores": os.cpu_count(), "usable": _usable(), "system": platform.platform()},
        "threads": threads,
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "load_before": os.getloadavg(),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _usable() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def counted(run: dict[str, Any]) -> list[dict[str, Any]]:
    """The steps of one process that count: not the first, unless it is the only one."""
    return run["steps"][1:] or run["steps"]


def rates(run: dict[str, Any]) -> dict[str, float]:
    """One process in a few numbers: medians over its steps that count."""
    steps = counted(run)
    return {
        "rollout": median(s["tokens"] / s["rollout"] for s in steps),
        "learn": median(s["tokens"] / s["learn"] for s in steps),
        "whole": median(s["tokens"] / s["whole"] for s in steps),
        "step": median(s["whole"] for s in steps),
        "cpu": median(s["cpu"] / s["tokens"] for s in steps) * 1e3,
        "training": (run["peak"] - run["ready"]) / MEGA,
        "process": run["peak"] / MEGA,
    }


def _steps(size: dict[str, Any]) -> str:
    if warm := size.get("warm", 0):
        return f"{size['steps']} steps after a batch of answers of {warm} tokens that warms up"
    return f"{size['steps'] - 1} steps after a first that warms up"


def reached(run: dict[str, Any], target: float) -> float | None:
    """Seconds of training until held-out accuracy first reached the target."""
    return next((seconds for seconds, accuracy in run["curve"] if accuracy >= target), None)


def ratio(pairs: Iterable[tuple[float, float]], *, larger_is_better: bool) -> tuple[float, float, float]:
    """Median, least and greatest of how many times better the first of each pair is."""
    found = sorted(a / b if larger_is_better else b / a for a, b in pairs)
    return median(found), found[0], found[-1]


# name in `rates`, what it is called, how it is written, whether larger is better
MEASURES: list[tuple[str, str, str, bool]] = [
    ("rollout", "rollout, tokens/s", "{:,.0f}", True),
    ("learn", "learner, tokens/s", "{:,.0f}", True),
    ("whole", "whole step, tokens/s", "{:,.0f}", True),
    ("step", "whole step, s", "{:.2f}", False),
    ("cpu", "whole step, processor ms per token", "{:.2f}", False),
    ("training", "peak memory of training, MiB", "{:,.0f}", False),
    ("process", "peak memory of the process, MiB", "{:,.0f}", False),
]


def markdown(results: dict[str, Any]) -> str:
    parts = [_head(results["about"])]
    parts += [_speed(name, row) for name, row in results["speed"].items()]
    if "memory" in results:
        parts.append(_memory(results["memory"]))
    if "job" in results:
        parts.append(_job(results["job"]))
    if "pretrained_job" in results:
        parts.append(_job(results["pretrained_job"], "The smollm recipe"))
    if "imports" in results:
        parts.append(_imports(results["imports"]))
    if "tune" in results:
        parts.append(_tune(results["tune"]))
    return "\n\n".join(parts) + "\n"


def brief(name: str) -> str:
    """A method's label with the parts in its settings by their names alone, and no empty brackets."""
    return re.sub(r"\{'part': '\w+\.(\w+)'[^{}]*\}", r"\1", name).replace("'", "").removesuffix("()")


def machine(it: dict[str, Any]) -> str:
    """Where it was measured, with what, and how busy the machine was, as a paragraph and a half."""
    where, load = it["machine"], (it["load_before"][0], it["load_after"][0])
    packages = ", ".join(f"{name} {number}" for name, number in it["versions"].items() if number)
    return (
        f"{where['cpu']}, {where['cores']} cores ({where['usable']} usable), {it['threads']} thread(s), float32. "
        f"Python {it['python']}, {packages}.\n\nLoad average {load[0]:.1f} before and {load[1]:.1f} after."
        + (f" Beside it ran {it['busy']} process(es) that computed all the time." if it.get("busy") else "")
    )


def _head(it: dict[str, Any]) -> str:
    load = (it["load_before"][0], it["load_after"][0])
    lines = [
        "# polopt and TRL on one machine",
        "",
        f"{it['date']}, commit {it['commit']}, `{it['command']}`, {it['seconds'] / 60:.0f} minutes.",
        "",
        machine(it),
    ]
    if max(load) > it["machine"]["usable"] + 0.5:
        lines[-1] += (
            " **The machine was busy with other work: seconds are too long on both sides and ratios scatter.** "
            "Processor time suffers least from that."
        )
    lines += ["", "Ratios say how many times better polopt is: median over repeats, and their range."]
    return "\n".join(lines)


def _table(header: str, rows: Iterable[Iterable[str]]) -> str:
    cells = header.split("|")
    lines = [f"|{header}|", "|" + "|".join("---" if i == 0 else "---:" for i in range(len(cells))) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _compare(name: str, form: str, pairs: list[tuple[float, float | None]], larger: bool) -> list[str]:
    of_polopt = form.format(median(a for a, _ in pairs))
    compared = [(a, b) for a, b in pairs if b is not None]
    if not compared:
        return [name, of_polopt, "–", "–"]
    middle, low, high = ratio(compared, larger_is_better=larger)
    return [name, of_polopt, form.format(median(b for _, b in compared)), f"{middle:.2f} ({low:.2f} – {high:.2f})"]


# What a row changes of the arithmetic, in words.
CHANGED = {
    "compute": "Arithmetic in {} on weights, gradients and moments in float32, on both sides.",
    "sampling": "polopt draws its rollouts in {}, under its float32 learner; TRL and the floor are float32's.",
}


def _speed(name: str, row: dict[str, Any]) -> str:
    size, facts = row["size"], row["facts"]
    runs = [{side: rates(run) for side, run in pair.items()} for pair in row["runs"]]
    lines = []
    for key, title, form, larger in MEASURES:
        pairs = [(run["polopt"][key], run["trl"][key] if "trl" in run else None) for run in runs]
        lines.append(_compare(title, form, pairs, larger))
    text = (
        f"## {name}: {facts['shape']['total']:,} parameters\n\n"
        f"{size['rows']} rows, learned from {size['micro_rows']} at a time, groups of {size['group']}, "
        f"prompts of {facts['shape']['prompt']:.0f} tokens, answers of "
        f"{facts['length']:.0f} on average and at most {size['limit']}; {size['repeats']} repeats of "
        f"{_steps(size)}.\n\n"
    )
    text += "".join(CHANGED[key].format(value) + "\n\n" for key, value in row.get("changes", {}).items())
    return text + _table(" |polopt|TRL|ratio", lines) + "\n\n" + _distance(row)


def _distance(row: dict[str, Any]) -> str:
    """Times the least possible seconds, stage by stage."""
    size, machine = row["size"], Machine(**row["machine"])
    shape = Shape(**row["facts"]["shape"])
    lines = []
    for stage in ("rollout", "learn"):
        cells = [stage]
        for side in ("polopt", "trl"):
            steps = [s for run in row["runs"] if side in run for s in counted(run[side])]
            found = [
                (
                    step[stage],
                    floors(shape, size["rows"] // size["group"], size["rows"], step, machine, row.get("bytes", 4.0))[
                        stage
                    ],
                )
                for step in steps
            ]
            if not found:
                cells.append("–")
                continue
            if side == "polopt":
                middle = lambda key, f=found: median(floor[key] for _, floor in f)  # noqa: E731
                cells += [f"{middle('flops') / 1e9:.2f}", f"{middle('bytes') / 1e6:,.0f}", f"{middle('seconds'):.3f}"]
            cells.append(f"{median(seconds / floor['seconds'] for seconds, floor in found):.1f}")
        lines.append(cells)
    text = (
        f"Reached: {machine.flops / 1e9:.0f} GFLOP/s, {machine.bandwidth / 1e9:.0f} GB/s reading the weights' size.\n\n"
    )
    return text + _table("least|GFLOP|MB|seconds|polopt, times that|TRL, times that", lines)


def _memory(row: dict[str, Any]) -> str:
    """Peak memory from the first batch on, and how long its learner took."""
    spec, lines = row["spec"], []
    of = {
        "peak memory of training, MiB": lambda run: (run["peak"] - run["ready"]) / MEGA,
        "peak memory of the process, MiB": lambda run: run["peak"] / MEGA,
        "learner, s": lambda run: run["steps"][0]["learn"],
    }
    for title, value in of.items():
        pairs = [(value(run["polopt"]), value(run["trl"]) if "trl" in run else None) for run in row["runs"]]
        lines.append(_compare(title, "{:,.0f}" if "MiB" in title else "{:.1f}", pairs, False))
    return (
        f"## Memory: a vocabulary of 151,936, {row['shape']['total']:,} parameters\n\n"
        f"{spec['rows']} rows of a short prompt and {spec['limit']:,} new tokens, learned from {spec['micro_rows']} at "
        "a time; one batch a process.\n\n" + _table(" |polopt|TRL|ratio", lines)
    )


def _job(job: dict[str, Any], title: str = "The main job") -> str:
    spec, lines = job["spec"], []
    for i, run in enumerate(job["runs"], start=1):
        clock = {side: reached(it, spec["target"]) for side, it in run.items()}
        # A run that reaches the target stops there, so all of its steps led to it.
        cpu = {side: sum(s["cpu"] for s in it["steps"]) if clock[side] else None for side, it in run.items()}
        best = {side: max(accuracy for _, accuracy in it["curve"]) for side, it in run.items()}
        each = {side: median(s["cpu"] for s in it["steps"]) for side, it in run.items()}
        counts = {side: len(it["steps"]) for side, it in run.items()}
        lines.append([f"{i}, batches", str(counts["polopt"]), str(counts.get("trl", "–")), ""])
        for name, seconds in (("clock", clock), ("processor", cpu), ("processor, per batch", each)):
            of_polopt, of_trl = seconds["polopt"], seconds.get("trl")
            cells = [_seconds(seconds, best, side) for side in ("polopt", "trl")]
            lines.append([f"{i}, {name}", *cells, f"{of_trl / of_polopt:.2f}" if of_polopt and of_trl else "–"])
    return (
        f"## {title}: seconds of training to {spec['target']:.0%} held-out accuracy\n\n"
        f"From the recipe's warmed-up policy ({job['facts']['accuracy']:.0%}); {spec['rows']} rows, groups of "
        f"{spec['group']}, at most {spec['limit']} tokens, {spec['minibatches']} optimiser steps a batch. Judged every "
        f"{spec['every']} batches on {spec['problems']} problems, off the clock. How many "
        "batches it takes is mostly chance, how long each takes is not.\n\n" + _table("repeat|polopt|TRL|ratio", lines)
    )


def _seconds(seconds: dict[str, float | None], best: dict[str, float], side: str) -> str:
    if side not in seconds:
        return "–"
    found = seconds[side]
    return f"not reached (best {best[side]:.0%})" if found is None else f"{found:.2f}" if found < 10 else f"{found:.0f}"


def _imports(seconds: dict[str, list[float]]) -> str:
    lines = []
    for name, values in seconds.items():
        middle, low, high = ratio(zip(values, seconds["torch"], strict=True), larger_is_better=True)
        lines.append([name, f"{median(values):.2f}", f"{middle:.2f} ({low:.2f} – {high:.2f})"])
    return "## Import time\n\n" + _table("import|seconds|times torch alone", lines)


def _tune(found: dict[str, Any]) -> str:
    lines = []
    for name, run in found.items():
        if "failed" in run:
            lines.append([name, "–", "–", "–", "–", f"failed: {run['failed'][:120]}"])
            continue
        it = rates(run)
        lines.append(
            [
                name,
                f"{it['rollout']:,.0f}",
                f"{it['learn']:,.0f}",
                f"{it['whole']:,.0f}",
                f"{it['cpu']:.2f}",
                f"{it['training']:,.0f}",
            ]
        )
    return "## TRL's settings, tried once each\n\n" + _table(
        "setting|rollout, tokens/s|learner, tokens/s|whole step, tokens/s|processor ms/token|training's memory, MiB",
        lines,
    )
