"""polopt train, report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polopt.cli import wording
from polopt.cli.command_group import UsageError, checked, leading
from polopt.cli.options import MethodOption, RecipeArgument, RolloutClusterOption, SeedOption, SetOption

if TYPE_CHECKING:
    from polopt.training.loop import Watcher
    from polopt.training.recipe import Recipe
    from polopt.training.run import Run


RunOption = Annotated[
    Path | None,
    typer.Option(
        "--run",
        help="The run's folder, new or with a run of the same recipe, which is continued; runs/RECIPE-METHOD-N if "
        "none.",
    ),
]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="FILE",
        help="Train on this file, and name a method in the place of a recipe: polopt train dpo --data pairs.jsonl "
        "--model FOLDER.",
    ),
]
ModelOption = Annotated[
    str | None, typer.Option("--model", metavar="MODEL", help="With --data: a folder, a GGUF file or a hub name.")
]
HeldoutOption = Annotated[
    str | None, typer.Option("--heldout", metavar="FILE", help="With --data: the file to evaluate on.")
]
ResumeOption = Annotated[
    Path | None,
    typer.Option(
        "--resume",
        metavar="RUN",
        help="Continue a run, exactly; with --set, extend it: steps of its last stage, evaluation, checkpoint.",
    ),
]


def train(
    recipe: RecipeArgument = None,
    run: RunOption = None,
    method: MethodOption = None,
    data: DataOption = None,
    model: ModelOption = None,
    heldout: HeldoutOption = None,
    seed: SeedOption = None,
    changes: SetOption = None,
    resume: ResumeOption = None,
    anyway: Annotated[
        bool,
        typer.Option("--anyway", help="Continue a run although its recipe, data, code or libraries have changed."),
    ] = False,
    cluster: RolloutClusterOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would run and what it takes; stop there.")
    ] = False,
) -> None:
    """Train a policy. Without arguments: a small language model, on this machine, in minutes."""
    from polopt.training import launch

    if resume is not None:
        if any(option is not None for option in (recipe, run, method, data, model, heldout, seed)) or dry_run:
            raise UsageError(
                "--resume continues a run as it was begun: give it alone, with --cluster, with --anyway, or with --set "
                "to extend it"
            )
        _resume(resume, changes, cluster=cluster, anyway=anyway)
        return
    if data is None:
        if model is not None or heldout is not None:
            raise UsageError(
                "--model and --heldout come with --data; a recipe has them as policy.model and tasks.heldout"
            )
        found = loaded(recipe, method, seed, changes)
    else:
        found = _on_data(recipe, method, data, model, heldout, wording.with_seed(changes, seed))
    with checked():
        found = found.on_cluster(cluster)
    if dry_run:
        from polopt.cli.dry_run import describe

        describe(found)
        return
    if run is None:
        name = Path(recipe or "laptop").stem if data is None else Path(data).stem
        run = wording.fresh_folder(f"{name}-{method_of(found)}")
    folder = run
    if launch.is_finished(found, folder):
        if leading():
            wording.screen().print(f"{folder} has finished already: nothing was trained", soft_wrap=True)
        return
    _watch(folder, lambda watchers: launch.train(found, folder, watchers=watchers, address=cluster, anyway=anyway))


def _on_data(
    name: str | None, method: str | None, data: str, model: str | None, heldout: str | None, changes: dict[str, Any]
) -> Recipe:
    """Returns the recipe of a method, a file and a model. name: the argument in a recipe's place."""
    from polopt.training.data_recipe import data_recipe

    if (name is None) == (method is None) or model is None:
        raise UsageError("--data needs a method and a model, as in polopt train dpo --data pairs.jsonl --model FOLDER")
    with checked():
        return data_recipe(wording.method(method or name or ""), data, model, heldout=heldout, changes=changes)


def _resume(run: Path, changes: list[str] | None, *, cluster: str | None, anyway: bool) -> None:
    """Continues a run, extended by the changes."""
    from polopt.training import launch
    from polopt.training.run import Run

    folder = Run.open(run).folder
    more = wording.settings(changes or [])
    settings: dict[str, Any] = {"address": cluster, "anyway": anyway, "changes": more}
    _watch(folder, lambda watchers: launch.resume(folder, watchers=watchers, **settings))


def loaded(recipe: str | None, method: str | None, seed: int | None, changes: list[str] | None) -> Recipe:
    """Loads a recipe with the changes of the options."""
    from polopt.training import recipe as recipe_file

    settings = wording.with_seed(changes, seed)
    return recipe_file.load(recipe, settings, method=None if method is None else wording.method(method))


def method_of(recipe: Recipe) -> str:
    """Returns the last stage's method as part of a folder's name; for `my_method.py:build`, the file's."""
    from polopt.training.recipe import name_of_method

    method = name_of_method(recipe.stages[recipe.main_stage].method)
    return Path(method.partition(":")[0]).stem if ":" in method else method


def _watch(folder: Path, work: Callable[[tuple[Watcher, ...]], Run]) -> None:
    """Runs and displays a run to its end, or to Ctrl-C; only the main process displays it."""
    if not leading():
        work(())
        return
    from polopt.cli.results import show_results
    from polopt.display.live import watching
    from polopt.display.progress import Progress
    from polopt.training.run import Run

    screen, progress = wording.screen(), Progress(folder.absolute())
    try:
        with watching(screen, progress) as watcher:
            run = work((watcher,))
    except KeyboardInterrupt:
        if not (folder / "recipe.yaml").is_file():
            raise  # nothing was begun
        place = f"step {step}" if (step := Run(folder).checkpoint) else "the beginning"
        screen.print(
            f"Stopped after {progress.steps} of {progress.total} steps. "
            f"Continue from {place}: polopt train --resume {folder}",
            soft_wrap=True,
        )
        raise typer.Exit(130) from None
    show_results(screen, run)


def report(run: Annotated[Path, typer.Argument(help="A run's folder, finished or not.")]) -> None:
    """Write a run's report.html again."""
    from polopt.report import write_report

    with checked():
        path = write_report(run)
    wording.screen().print(str(path), soft_wrap=True)
