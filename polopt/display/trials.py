"""Display of the runs of a comparison while they train."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from polopt.display.format import duration, rate
from polopt.training.estimates import score_of
from polopt.training.run_executor import ComparedRun


class Board:
    """A display of all runs: a live page in a terminal, elsewhere a line for each run that ends."""

    def __init__(self, screen: Console) -> None:
        self.screen = screen
        self.live = Live(console=screen, refresh_per_second=4, transient=True) if screen.is_terminal else None
        self.printed: set[tuple[str, int]] = set()
        self.begun: tuple[float, int] | None = None

    def __enter__(self) -> None:
        if self.live:
            self.live.start()

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def update(self, trials: Sequence[ComparedRun]) -> None:
        for trial in trials:
            key = (trial.name, trial.seed)
            if trial.state == "finished" and key not in self.printed:
                self.printed.add(key)
                self.screen.print(f"{trial.name}, seed {trial.seed}: {_accuracy(trial)}", soft_wrap=True)
        if self.live:
            self.live.update(_board(trials, self._left(trials)))

    def _left(self, trials: Sequence[ComparedRun]) -> float | None:
        """Estimates the seconds until all runs are finished, at the pace since the first update."""
        now, done = time.perf_counter(), sum(map(_done, trials))
        if self.begun is None:
            self.begun = now, done
        start, before = self.begun
        return (now - start) / (done - before) * (sum(map(_steps, trials)) - done) if done > before else None


def _board(trials: Sequence[ComparedRun], left: float | None) -> Group:
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for trial in trials:
        if trial.state == "running":
            done, total = _done(trial), _steps(trial)
            bar = ProgressBar(total, done, complete_style="cyan")
            state = f"{done} of {total} steps" if done else "starting"
            table.add_row(f"{trial.name}, seed {trial.seed}", bar, state, _accuracy(trial))
    finished = sum(trial.state == "finished" for trial in trials)
    clock = f", about {duration(left)} left" if left else ""
    return Group(table, Text(f"{finished} of {len(trials)} runs finished{clock}", style="dim"))


def _steps(trial: ComparedRun) -> int:
    return trial.recipe.total_steps


def _done(trial: ComparedRun) -> int:
    if trial.state == "finished":
        return _steps(trial)
    record = trial.run.last("metrics")
    return record["step"] + 1 if record else 0


def _accuracy(trial: ComparedRun) -> str:
    found = trial.run.last("evaluations")
    return rate(score_of(found)[1]) if found else ""
