"""polopt train, report, recipes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.syntax import Syntax
from rich.table import Table

from polopt.cli import text
from polopt.cli.door import Refused, checked, leading
from polopt.cli.progress import Progress
from polopt.cli.results import show_results
from polopt.cli.watch import watching
from polopt.training import language
from polopt.training import recipe as recipe_file
from polopt.training.cluster.connect import for_cluster
from polopt.training.language import Watcher
from polopt.training.recipe import Recipe, name_of_method
from polopt.training.run import Run

RecipeArgument = Annotated[
    str | None, typer.Argument(metavar="[RECIPE]", help="A YAML file or one of `polopt recipes`; the laptop's if none.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, as in --set stages.rl.steps=50; repeatable."),
]


def train(
    recipe: RecipeArgument = None,
    run: Annotated[
        Path | None, typer.Option("--run", help="The new run's folder; runs/RECIPE-METHOD-N if none.")
    ] = None,
    method: Annotated[
        str | None, typer.Option("--method", metavar="NAME", help="Of the last stage: gspo, or '{name: rloo, kl: 0}'.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed")] = None,
    changes: SetOption = None,
    resume: Annotated[Path | None, typer.Option("--resume", metavar="RUN", help="Continue a run, exactly.")] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            metavar="ADDRESS",
            help="Draw the rollouts on a Ray cluster: HOST:PORT, auto for the one of this machine, or local.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would run and what it takes; stop there.")
    ] = False,
) -> None:
    """Train a policy. Without arguments: a small language model, on this machine, in minutes."""
    if resume is not None:
        if any(given is not None for given in (recipe, run, method, seed, changes)) or dry_run:
            raise Refused("--resume continues a run as it was begun: give it alone, or with --cluster")
        there = Run.open(resume).folder
        _watch(there, lambda watchers: language.resume(there, watchers=watchers, address=cluster))
        return
    found = for_cluster(loaded(recipe, method, seed, changes), cluster)
    if dry_run:
        _describe(found)
        return
    if run is None:
        name = Path(recipe or "laptop").stem
        run = text.fresh_folder(f"{name}-{method_of(found)}")
    folder = Run.vacant(run).folder
    _watch(folder, lambda watchers: language.train(found, folder, watchers=watchers, address=cluster))


def loaded(recipe: str | None, method: str | None, seed: int | None, changes: list[str] | None) -> Recipe:
    """A recipe with the changes that options ask for."""
    settings = text.settings(changes or [])
    if seed is not None:
        settings["seed"] = seed
    return recipe_file.load(recipe, settings, method=None if method is None else text.method(method))


def method_of(recipe: Recipe) -> str:
    """The last stage's method as part of a folder's name; of `my_method.py:build`, the file's."""
    method = name_of_method(recipe.stages[recipe.main_stage].method)
    return Path(method.partition(":")[0]).stem if ":" in method else method


def _watch(folder: Path, work: Callable[[tuple[Watcher, ...]], Run]) -> None:
    """Show a run to its end, or to Ctrl-C. Of processes that train together, one shows it."""
    if not leading():
        work(())
        return
    screen, progress = text.screen(), Progress(folder)
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


def _describe(recipe: Recipe) -> None:
    from polopt.training.estimate import estimate

    screen = text.screen()
    screen.print(Syntax(recipe.to_yaml().rstrip(), "yaml", background_color="default"))
    for name, algorithm in recipe.algorithms.items():
        screen.print(f"\n{name}: {name_of_method(recipe.stages[name].method)}", style="bold")
        screen.print(sentence(algorithm))
    if screen.is_terminal:
        with screen.status("Trying a few steps of each stage …"):
            found = estimate(recipe)
    else:
        found = estimate(recipe)
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row("parameters", text.count(found.parameters), "")
    held = ", ".join(f"{k} {text.size(v)}" for k, v in found.memory.items.items() if v)
    table.add_row(
        "memory",
        f"about {text.size(found.memory.peak)}",
        f"{held}; an estimate from shapes, libraries add about 0.7 GB",
    )
    paces = ", ".join(f"{n} {recipe.stages[n].steps} x {text.duration(s)}" for n, s in found.steps.items())
    total = "not measured" if found.total is None else f"about {text.duration(found.total)}"
    remarks = [f"{paces}; measured on an untrained copy"] if paces else []
    remarks += [f"{name} asks {', '.join(urls)}, and a dry run does not" for name, urls in found.servers.items()]
    table.add_row("time", total, "; ".join(remarks))
    screen.print()
    screen.print(table)


def sentence(algorithm: Any) -> Table:
    """An algorithm, one line for each of its four words."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    for name, part in algorithm.settings().items():
        table.add_row(f"  {name}", repr(part))
    return table


def report(run: Annotated[Path, typer.Argument(help="A run's folder, finished or not.")]) -> None:
    """Write a run's report.html again."""
    from polopt.report import write_report

    with checked():
        path = write_report(run)
    text.screen().print(str(path), soft_wrap=True)


def recipes() -> None:
    """List the recipes that come with polopt."""
    table = Table(box=None, pad_edge=False)
    for name in ("recipe", "stages", "tasks"):
        table.add_column(name)
    for name in recipe_file.names():
        found = recipe_file.load(name)
        stages = ", ".join(f"{k} ({name_of_method(s.method)}, {s.steps} steps)" for k, s in found.stages.items())
        datasets = found.tasks.get("datasets") or {}
        table.add_row(
            name, stages, f"{found.tasks['kind']}: {', '.join(datasets)}" if datasets else found.tasks["kind"]
        )
    text.screen().print(table)
