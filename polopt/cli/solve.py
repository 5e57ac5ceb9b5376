"""polopt solve."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from polopt.cli import wording
from polopt.cli.command_group import UsageError
from polopt.display.format import duration

if TYPE_CHECKING:
    from polopt.training.run import Run
    from polopt.training.solve_recipe import SolveRecipe

# Approximate number of lines of a run without a terminal.
LINES = 10


def solve(
    slug: Annotated[
        str,
        typer.Argument(
            metavar="METHOD",
            help="A solver: cfr, or '{name: cfr, alternating: true}'.",
            autocompletion=wording.complete_method,
        ),
    ],
    problem: Annotated[
        str, typer.Argument(help="kuhn-poker, leduc-poker, '{name: leduc-poker, ranks: 4}', or my_game.py:build.")
    ],
    steps: Annotated[int | None, typer.Option("--steps", help="Iterations; 1,000 if none.")] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            "--run",
            help="The run's folder, new or with a run of the same recipe, which is continued, or extended by more "
            "--steps; runs/METHOD-PROBLEM-N if none.",
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, as in --set method.delay=10; repeatable."),
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Continue a run although its code or libraries have changed.")
    ] = False,
) -> None:
    """Solve an exact problem with a method that is a solver, such as cfr-plus on kuhn-poker."""
    from polopt.training import solving
    from polopt.training.solve_recipe import recipe_of

    settings = wording.settings(changes or [])
    if steps is not None:
        if steps < 1:
            raise UsageError(f"--steps {steps}: give a number of iterations of at least 1")
        settings["steps"] = steps
    recipe = recipe_of(_named(slug, "METHOD"), _named(problem, "PROBLEM"), settings)
    folder = wording.fresh_folder(f"{_short(recipe.method)}-{_short(recipe.problem)}") if run is None else run
    screen = wording.screen()
    if solving.is_finished(recipe, folder):
        screen.print(f"{folder} has finished already: nothing was solved", soft_wrap=True)
        return
    watcher = Display(screen, folder)
    try:
        with watcher.bar:
            found = solving.solve(recipe, folder, watchers=(watcher,), anyway=anyway)
    except KeyboardInterrupt:
        if not (folder / "recipe.yaml").is_file():
            raise  # nothing was begun
        screen.print(f"Stopped after {watcher.done} of {recipe.steps} iterations. The same command continues {folder}")
        raise typer.Exit(130) from None
    _show_result(screen, found, folder)


def _named(text: str, what: str) -> str | dict[str, Any]:
    """Parses a name, or a name and settings as YAML."""
    if not text.lstrip().startswith("{"):
        return text
    from polopt.yaml_data import read_yaml

    found = read_yaml(text, what)
    if not isinstance(found, dict) or "name" not in found:
        raise UsageError(f"{what} {text!r:.100}: give a name, or a name with settings as '{{name: ..., ...}}'")
    return found


def _short(spec: str | Mapping[str, Any]) -> str:
    """Returns the name of a method or problem as part of a folder's name; for `my_game.py:build`, the file's."""
    name = spec if isinstance(spec, str) else str(spec["name"])
    return Path(name.partition(":")[0]).stem if ":" in name else name


def _numbers(record: Mapping[str, Any]) -> str:
    """Formats the measures of a record, as exploitability 0.0123 chips, value -0.0556."""
    names = [name for name in record if name not in ("step", "unit", "seconds")]
    units = [f" {record['unit']}", *[""] * len(names)]
    return ", ".join(f"{name} {record[name]:.4g}{unit}" for name, unit in zip(names, units, strict=False))


class Display:
    """A `SolveWatcher` that shows a progress bar in a terminal, and about `LINES` lines elsewhere."""

    def __init__(self, screen: Console, folder: Path) -> None:
        self.screen, self.folder, self.done, self._due = screen, folder, 0, 0
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal)
        self._task = self.bar.add_task("", total=None)

    def begin(self, recipe: SolveRecipe, step: int) -> None:
        self.steps, self.done = recipe.steps, step
        self.screen.print(f"{self.folder}: {_short(recipe.method)} on {_short(recipe.problem)}", soft_wrap=True)
        if step:
            self.screen.print(f"Continued after {step} of {recipe.steps} iterations.")
        self.bar.update(self._task, total=recipe.steps, completed=step)
        self._due = step

    def measured(self, record: Mapping[str, Any]) -> None:
        self.done = record["step"]
        self.bar.update(self._task, completed=self.done, description=_numbers(record))
        if not self.screen.is_terminal and (self.done >= self._due or self.done == self.steps):
            self._due = self.done + max(1, self.steps // LINES)
            self.screen.print(f"{self.done}/{self.steps}  {_numbers(record)}", soft_wrap=True)


def _show_result(screen: Console, run: Run, folder: Path) -> None:
    from polopt.report import write_report

    about, last = run.about, run.last("metrics")
    assert last is not None
    screen.print(f"{about['method']} on {about['problem']} after {last['step']:,} iterations: {_numbers(last)}")
    screen.print(f"Solution  {folder / 'solution.json'}", soft_wrap=True)
    screen.print(f"Report    {write_report(folder)}", soft_wrap=True)
    screen.print(f"Time      {duration(about['seconds'])}")
