"""Live displays of a run: a page in a terminal or notebook, lines in a log."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from polopt.display.format import count, duration, rate, sparkline
from polopt.display.progress import Progress
from polopt.training.estimates import cases_of, label_of, score_of, unit_of
from polopt.training.loop import Watcher
from polopt.training.recipe import Recipe, name_of_method

# Without a terminal: the most seconds between lines, and the fewest lines of a stage.
MIN_LINE_SECONDS, LINES = 10.0, 20
# The fewest seconds between two updates in a notebook, and its width in characters.
REDRAW, NOTEBOOK = 0.5, 100


@contextmanager
def watching(console: Console, progress: Progress) -> Iterator[Watcher]:
    """Yields a watcher that displays the run for as long as the context is open."""
    if console.is_jupyter:
        page = NotebookPage(progress)
        yield page
        page.draw()
    elif console.is_terminal:
        with Live(Page(progress), console=console, refresh_per_second=4):
            yield progress
    else:
        console.print("Preparing tasks and policy.", soft_wrap=True)
        yield Lines(console, progress)


class Page:
    """The live page, rendered from the current numbers at each refresh."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.progress.recipe is None:
            waited = duration(self.progress.elapsed())
            yield Text(f"Preparing tasks and policy … {waited}", style="dim")
            return
        yield Group(Text(headline(self.progress), style="bold"), self._stages(), "", self._numbers(options.max_width))
        yield Text(clock(self.progress), style="dim")

    def _stages(self) -> Table:
        progress, table = self.progress, Table.grid(padding=(0, 2), expand=True)
        assert progress.recipe is not None
        table.add_column(no_wrap=True)
        table.add_column(ratio=1)
        table.add_column(justify="right", no_wrap=True)
        for name, stage in progress.recipe.stages.items():
            done = progress.done[name]
            steps = progress.recipe.rounds * stage.steps
            bar = ProgressBar(steps, done, complete_style="cyan", finished_style="green")
            table.add_row(name, bar, f"{done} of {steps} steps")
        return table

    def _numbers(self, width: int) -> Table:
        progress, table = self.progress, Table.grid(padding=(0, 2))
        room = max(10, width - 46)
        table.add_column(style="dim", no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(style="cyan", no_wrap=True)
        judging, scores = progress.judging(), [score_of(e) for e in progress.heldout]
        latest = rate(scores[-1][1]) if scores else "–"
        name = label_of(*scores[-1]) if scores else "held-out score"
        trend = (
            f"judging {judging} problems …" if judging else sparkline([score["estimate"] for _, score in scores], room)
        )
        table.add_row(name, latest, trend)
        if progress.rewards and progress.entropies:
            table.add_row("reward", f"{progress.rewards[-1]:.3f}", sparkline(progress.rewards, room))
            table.add_row("entropy", f"{progress.entropies[-1]:.3f} nats a token", sparkline(progress.entropies, room))
        elif "loss" in progress.record:
            table.add_row("loss", f"{progress.record['loss']:.3f}", "")
        if workers_text := workers(progress.record):
            table.add_row("workers", workers_text, "")
        return table


class NotebookPage:
    """A `Watcher` that draws the live page into the output of a notebook's cell."""

    def __init__(self, progress: Progress) -> None:
        from IPython.display import HTML, display

        self.progress, self.drawn_at, self._html = progress, progress.clock(), HTML
        self.output = display(HTML("Preparing tasks and policy …"), display_id=True)

    def begin(self, recipe: Recipe, about: Mapping[str, Any]) -> None:
        self.progress.begin(recipe, about)
        self.draw()

    def step(self, record: Mapping[str, Any]) -> None:
        self.progress.step(record)
        if self.progress.clock() - self.drawn_at >= REDRAW:
            self.draw()

    def evaluation(self, record: Mapping[str, Any]) -> None:
        self.progress.evaluation(record)
        self.draw()

    def draw(self) -> None:
        self.drawn_at = self.progress.clock()
        console = Console(file=io.StringIO(), record=True, width=NOTEBOOK, force_terminal=True, force_jupyter=False)
        console.print(Page(self.progress))
        style = "font-family: monospace; line-height: 1.3"
        html = console.export_html(inline_styles=True, code_format=f'<pre style="{style}">{{code}}</pre>')
        self.output.update(self._html(html))


class Lines:
    """A `Watcher` for logs and pipes: a line at least every `EVERY` seconds, and at least `LINES` a stage."""

    def __init__(self, console: Console, progress: Progress) -> None:
        self.console, self.progress, self.printed_at = console, progress, 0.0

    def begin(self, recipe: Recipe, about: Mapping[str, Any]) -> None:
        self.progress.begin(recipe, about)
        self.printed_at = self.progress.clock()
        self._print(headline(self.progress))

    def step(self, record: Mapping[str, Any]) -> None:
        self.progress.step(record)
        now = self.progress.clock()
        assert self.progress.recipe is not None
        steps, done = self.progress.recipe.stages[record["stage"]].steps, record["stage_step"] + 1
        is_due = done == steps or done % max(1, steps // LINES) == 0
        if is_due or now - self.printed_at >= MIN_LINE_SECONDS:
            self.printed_at = now
            place = f"{in_round(self.progress, record)}{record['stage']} {done}/{steps}"
            self._print(f"{place}  {', '.join(numbers(record))}  ({clock(self.progress)})")

    def evaluation(self, record: Mapping[str, Any]) -> None:
        self.progress.evaluation(record)
        name, score = score_of(record)
        self._print(
            f"{judged_at(self.progress, record)}  {label_of(name, score)} {rate(score)} "
            f"on {record['problems']} {cases_of(unit_of(score))}"
        )

    def _print(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)


def headline(progress: Progress) -> str:
    assert progress.recipe is not None
    recipe = progress.recipe
    method = name_of_method(recipe.stages[recipe.main_stage].method)
    return f"{progress.folder}: {method}, {count(progress.parameters)} parameters, seed {recipe.seed}"


def judged_at(progress: Progress, record: Mapping[str, Any]) -> str:
    """Formats the time of an evaluation: "rl, before", or the stage and its step."""
    stage, place = record["stage"], in_round(progress, record)
    if record["when"] != "during" or progress.recipe is None:
        return f"{place}{stage}, {record['when']}"
    steps = progress.recipe.stages[stage].steps
    return f"{place}{stage} {progress.done[stage] - (record.get('round', 1) - 1) * steps}/{steps}"


def in_round(progress: Progress, record: Mapping[str, Any]) -> str:
    """Formats the round of a record as a prefix of its stage: "round 2/3, "; empty if there is one round."""
    rounds = progress.recipe.rounds if progress.recipe else 1
    return f"round {record['round']}/{rounds}, " if "round" in record else ""


# The metrics of a step in a log line, where measured: key, label, format.
SHOWN = (
    ("reward/mean", "reward", ".3f"),
    ("solved", "solved", ".1%"),
    ("loss", "loss", ".4g"),
    ("reference_kl", "KL to reference", ".3g"),
    ("entropy", "entropy", ".3f"),
)


def numbers(record: Mapping[str, Any]) -> list[str]:
    """Formats the metrics of a step that a log line shows."""
    found = [f"{label} {format(record[key], form)}" for key, label, form in SHOWN if key in record]
    return found + ([f"workers {text}"] if (text := workers(record)) else [])


def workers(record: Mapping[str, Any]) -> str:
    """Formats the number of workers and the staleness of their rows; empty for a run without workers."""
    if "cluster/workers" not in record:
        return ""
    age = record.get("staleness/mean", 0.0)
    return f"{record['cluster/workers']:.0f}" + (f", rows {age:.1f} updates old" if age else "")


def clock(progress: Progress) -> str:
    left = progress.left()
    parts = [duration(progress.elapsed())]
    if left is not None and progress.steps < progress.total:
        parts.append(f"about {duration(left)} left")
    if "tokens_per_second" in progress.record:
        decisions = "decisions" if progress.recipe is not None and progress.recipe.kind == "control" else "tokens"
        parts.append(f"{progress.record['tokens_per_second']:,.0f} {decisions}/s")
    return ", ".join(parts)
