"""A run on the screen: a live page in a terminal, a line now and then elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from polopt.display.format import count, duration, percent, rate, sparkline
from polopt.display.progress import Progress
from polopt.training.language import Watcher
from polopt.training.recipe import Recipe, name_of_method

# Seconds between lines where there is no terminal.
EVERY = 10.0


@contextmanager
def watching(console: Console, progress: Progress) -> Iterator[Watcher]:
    """A watcher that shows what it hears for as long as the block runs."""
    if console.is_terminal:
        with Live(Page(progress), console=console, refresh_per_second=4):
            yield progress
    else:
        console.print("Preparing tasks and policy.", soft_wrap=True)
        yield Lines(console, progress)


class Page:
    """The live page, drawn anew from the numbers at each refresh."""

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
            bar = ProgressBar(stage.steps, done, complete_style="cyan", finished_style="green")
            table.add_row(name, bar, f"{done} of {stage.steps} steps")
        return table

    def _numbers(self, width: int) -> Table:
        progress, table = self.progress, Table.grid(padding=(0, 2))
        room = max(10, width - 46)
        table.add_column(style="dim", no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(style="cyan", no_wrap=True)
        judging, accuracy = progress.judging(), [e["pass@1"]["estimate"] for e in progress.heldout]
        latest = rate(progress.heldout[-1]["pass@1"]) if accuracy else "–"
        trend = f"judging {judging} problems …" if judging else sparkline(accuracy, room)
        table.add_row("held-out accuracy", latest, trend)
        if progress.rewards and progress.entropies:
            table.add_row("reward", f"{progress.rewards[-1]:.3f}", sparkline(progress.rewards, room))
            table.add_row("entropy", f"{progress.entropies[-1]:.3f} nats a token", sparkline(progress.entropies, room))
        elif "loss" in progress.record:
            table.add_row("loss", f"{progress.record['loss']:.3f}", "")
        if told := workers(progress.record):
            table.add_row("workers", told, "")
        return table


class Lines:
    """A `Watcher` for logs and pipes."""

    def __init__(self, console: Console, progress: Progress) -> None:
        self.console, self.progress, self.told = console, progress, 0.0

    def begin(self, recipe: Recipe, about: Mapping[str, Any]) -> None:
        self.progress.begin(recipe, about)
        self.told = self.progress.clock()
        self._say(headline(self.progress))

    def step(self, record: Mapping[str, Any]) -> None:
        self.progress.step(record)
        now = self.progress.clock()
        if now - self.told >= EVERY:
            self.told = now
            self._say(f"{where(self.progress)}  {', '.join(numbers(record))}  ({clock(self.progress)})")

    def evaluation(self, record: Mapping[str, Any]) -> None:
        self.progress.evaluation(record)
        accuracy = rate(record["pass@1"])
        self._say(f"{where(self.progress)}  held-out accuracy {accuracy} on {record['problems']} problems")

    def _say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)


def headline(progress: Progress) -> str:
    assert progress.recipe is not None
    recipe = progress.recipe
    method = name_of_method(recipe.stages[recipe.main_stage].method)
    return f"{progress.folder}: {method}, {count(progress.parameters)} parameters, seed {recipe.seed}"


def where(progress: Progress) -> str:
    assert progress.recipe is not None
    return f"{progress.stage} {progress.done[progress.stage]}/{progress.recipe.stages[progress.stage].steps}"


def numbers(record: Mapping[str, Any]) -> list[str]:
    """The few numbers of a step that a log line has room for."""
    told = [f"workers {text}"] if (text := workers(record)) else []
    if "entropy" not in record:
        return ([f"loss {record['loss']:.3f}"] if "loss" in record else []) + told
    return [
        f"reward {record['reward/mean']:.3f}",
        f"solved {percent(record['solved'])}",
        f"entropy {record['entropy']:.3f}",
        *told,
    ]


def workers(record: Mapping[str, Any]) -> str:
    """How many workers there are, and how old their rows; nothing of a run without."""
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
        parts.append(f"{progress.record['tokens_per_second']:,.0f} tokens/s")
    return ", ".join(parts)
