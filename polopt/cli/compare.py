"""polopt compare."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from polopt.cli import text
from polopt.cli.train import SetOption
from polopt.metrics import Comparison, Interval
from polopt.training import compare as runner
from polopt.training.trials import Trial


def compare(
    methods: Annotated[list[str], typer.Argument(metavar="METHOD...", help="The first is the yardstick.")],
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Runs of each method, seeds 0 to N - 1.")],
    recipe: Annotated[str | None, typer.Option("--recipe", help="A YAML file or one of `polopt recipes`.")] = None,
    changes: SetOption = None,
    processes: Annotated[
        int | None, typer.Option("--processes", min=1, help="Runs at once; one per core if none.")
    ] = None,
    cluster: text.ClusterOption = None,
    run: Annotated[Path | None, typer.Option("--run", help="Where the runs go; runs/compare-A-B if none.")] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Train methods on one recipe with several seeds, and say how much better and how surely.

    Interrupted, it goes on where it was: the same command again.
    """
    chosen = [text.method(m) for m in methods]
    name = "-".join(runner.file_name(runner.label(m)) for m in chosen)
    folder = run or Path("runs") / f"compare-{name}"
    screen = text.screen(stderr=as_json)
    watch = Board(screen)
    try:
        with watch:
            comparison = runner.compare(
                chosen,
                seeds=seeds,
                folder=folder,
                recipe=recipe,
                changes=text.settings(changes or []),
                processes=processes,
                cluster=cluster,
                watch=watch.look,
            )
    except KeyboardInterrupt:
        screen.print("Stopped. The same command goes on from here.")
        raise typer.Exit(130) from None
    from polopt.report import compare_report

    page = compare_report(comparison, folder / "report.html")
    if as_json:
        typer.echo(json.dumps(runner.record(comparison), indent=1))
    else:
        screen.print(result_table(comparison))
    screen.print(f"Report  {page}", soft_wrap=True)


class Board:
    """All runs at a glance: a live page in a terminal, a line when something ends elsewhere."""

    def __init__(self, screen: Console) -> None:
        self.screen = screen
        self.live = Live(console=screen, refresh_per_second=4, transient=True) if screen.is_terminal else None
        self.told: set[tuple[str, int]] = set()
        self.begun: tuple[float, int] | None = None

    def __enter__(self) -> None:
        if self.live:
            self.live.start()

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def look(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            key = (trial.name, trial.seed)
            if trial.state == "finished" and key not in self.told:
                self.told.add(key)
                self.screen.print(f"{trial.name}, seed {trial.seed}: {_accuracy(trial)}", soft_wrap=True)
        if self.live:
            self.live.update(_board(trials, self._left(trials)))

    def _left(self, trials: Sequence[Trial]) -> float | None:
        """Seconds until all are finished, at the pace since the first look."""
        now, done = time.perf_counter(), sum(map(_done, trials))
        if self.begun is None:
            self.begun = now, done
        start, before = self.begun
        return (now - start) / (done - before) * (sum(map(_steps, trials)) - done) if done > before else None


def _board(trials: Sequence[Trial], left: float | None) -> Group:
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
    clock = f", about {text.duration(left)} left" if left else ""
    return Group(table, Text(f"{finished} of {len(trials)} runs finished{clock}", style="dim"))


def _steps(trial: Trial) -> int:
    return sum(stage.steps for stage in trial.recipe.stages.values())


def _done(trial: Trial) -> int:
    if trial.state == "finished":
        return _steps(trial)
    record = trial.run.last("metrics")
    return record["step"] + 1 if record else 0


def _accuracy(trial: Trial) -> str:
    found = trial.run.last("evaluations")
    return text.rate(found["pass@1"]) if found else ""


def result_table(comparison: Comparison) -> Table:
    """Accuracy over seeds and the difference to the first method, with intervals."""
    first = comparison.methods[0].name
    level = f"{100 * comparison.level:g} %"
    table = Table(
        title=f"Held-out accuracy over seeds, {level} intervals", title_justify="left", box=None, pad_edge=False
    )
    table.add_column("method", style="bold")
    table.add_column("seeds", justify="right")
    table.add_column("accuracy", justify="right")
    table.add_column(f"against {first}, points", justify="right")
    table.add_column("better on a new seed", justify="right")
    for row in comparison.table():
        table.add_row(
            row.name,
            str(row.final.n),
            _share(row.final),
            _share(row.difference, sign="+", unit="") if row.difference else "",
            _share(row.improvement) if row.improvement else "",
        )
    return table


def _share(interval: Interval, sign: str = "", unit: str = " %") -> str:
    ends = (interval.low, interval.high)
    if not all(map(math.isfinite, ends)):
        return f"{100 * interval.estimate:{sign}.1f}{unit} [one seed]"
    return f"{100 * interval.estimate:{sign}.1f}{unit} [{100 * ends[0]:{sign}.1f}, {100 * ends[1]:{sign}.1f}]"
