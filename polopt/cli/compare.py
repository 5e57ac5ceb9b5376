"""polopt compare."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from polopt.cli import wording
from polopt.cli.command_group import UsageError
from polopt.cli.options import ClusterOption, FamilyOption, JsonOption, SetOption

if TYPE_CHECKING:
    from rich.console import Console

    from polopt.metrics import Comparison


def compare(
    methods: Annotated[list[str], typer.Argument(metavar="METHOD...", help="The first is the yardstick.")],
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Runs of each method, seeds 0 to N - 1.")],
    recipe: Annotated[str | None, typer.Option("--recipe", help="A YAML file or one of `polopt recipes`.")] = None,
    changes: SetOption = None,
    family: FamilyOption = None,
    processes: Annotated[
        int | None, typer.Option("--processes", min=1, help="Runs at once; one per core if none.")
    ] = None,
    cluster: ClusterOption = None,
    run: Annotated[Path | None, typer.Option("--run", help="Where the runs go; runs/compare-A-B if none.")] = None,
    anytime: Annotated[
        bool,
        typer.Option("--anytime", help="Wider intervals, which hold however often one looks and adds seeds."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Train methods on one recipe with several seeds, and report the differences with intervals.

    After an interruption, the same command continues.
    """
    from polopt.display.trials import Board
    from polopt.training import compare as runner

    chosen = [wording.method(m) for m in methods]
    folder = run or runner.default_folder(chosen)
    varied = wording.family(family or [])
    if varied and anytime:
        raise UsageError("--anytime has no intervals of a family, whose bootstrap holds at one look; leave one out")
    screen = wording.screen(stderr=as_json)
    watch = Board(screen)
    screen.print(planned_line(seeds), style="dim")
    common: dict[str, Any] = {
        "seeds": seeds,
        "folder": folder,
        "recipe": recipe,
        "changes": wording.settings(changes or []),
        "processes": processes,
        "cluster": cluster,
        "watch": watch.update,
    }
    try:
        if varied:
            from polopt.cli.families import compare_over

            compare_over(chosen, varied, common, watch, as_json=as_json)
            return
        with watch:
            comparison = runner.compare(chosen, anytime=anytime, **common)
    except KeyboardInterrupt:
        screen.print("Stopped. The same command goes on from here.")
        raise typer.Exit(130) from None
    _show(comparison, folder, screen, as_json=as_json)


def _show(comparison: Comparison, folder: Path, screen: Console, *, as_json: bool) -> None:
    from polopt.report import write_comparison
    from polopt.training.compare import about_folder

    page = write_comparison(comparison, folder, about_folder(folder))
    if as_json:
        typer.echo((folder / "comparison.json").read_text(encoding="utf-8"))
    else:
        screen.print(result_table(comparison))
        if line := seeds_line(comparison):
            screen.print(line, style="dim")
    screen.print(f"Report  {page}", soft_wrap=True)


def result_table(comparison: Comparison) -> Table:
    """Tabulates scores over seeds and the difference to the first method, with intervals."""
    from polopt.training.estimates import SHARE

    first = comparison.methods[0].name
    share = comparison.unit == SHARE
    level = f"{100 * comparison.level:g} %"
    table = Table(
        title=f"Held-out {comparison.score} over seeds, {level} intervals"
        + (", at any number of seeds" if comparison.anytime else ""),
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    table.add_column("method", style="bold")
    table.add_column("seeds", justify="right")
    table.add_column(comparison.score, justify="right")
    table.add_column(f"against {first}{', points' if share else ''}", justify="right")
    if not comparison.anytime:
        table.add_column("better on a new seed", justify="right")
    show = (lambda x: wording.shown_share(x, "+", "")) if share else (lambda x: wording.shown_number(x, "+"))
    others = len(comparison.methods) - 1
    if others > 1:
        chance = others * (1 - comparison.level)
        table.caption = (
            f"* differs from {first} after Holm's correction for {others} methods; without it {chance:.2g} of "
            "them would differ by chance"
        )
        table.caption += ". Methods that share a letter do not differ after it for all pairs"
        table.caption_justify = "left"
        table.add_column("letters")
    letters = comparison.letters() if others > 1 else {}
    for row in comparison.table():
        cells = [
            row.name,
            str(row.final.n),
            wording.shown_share(row.final) if share else wording.shown_number(row.final),
        ]
        cells.append("" if not row.difference else show(row.difference) + (" *" if row.significant else ""))
        if not comparison.anytime:
            cells.append(wording.shown_share(row.improvement) if row.improvement else "")
        cells += [letters[row.name]] if letters else []
        table.add_row(*cells)
    return table


def planned_line(seeds: int) -> str:
    """Returns what a comparison of so many seeds can find, before any run; a difference's spread is known after it."""
    from polopt.metrics import detectable_difference

    if seeds < 2:
        return "One seed has no interval: any difference may be chance."
    sizes = {n: detectable_difference(n) for n in (seeds, 2 * seeds)}
    return (
        f"{seeds} seeds find a difference of {sizes[seeds]:.1f} standard deviations between seeds four times in five, "
        f"{2 * seeds} seeds one of {sizes[2 * seeds]:.1f}."
    )


def seeds_line(comparison: Comparison) -> str:
    """Returns how many seeds a difference of 5 points, or of a tenth of the first method's score, would take, by the
    spread of the seeds that there are; empty where they have none."""
    from polopt.metrics import seeds_needed
    from polopt.training.estimates import SHARE

    first, *others = comparison.methods
    base = dict(zip(first.seeds, first.final, strict=True))
    share = comparison.unit == SHARE
    size = 0.05 if share else abs(sum(first.final) / len(first.final)) / 10
    found = []
    for method in others:
        pairs = [score - base[seed] for seed, score in zip(method.seeds, method.final, strict=True) if seed in base]
        spread = statistics.stdev(pairs) if len(pairs) > 1 else 0.0
        if spread and size > spread / 100:  # else some 80,000 seeds or more
            found.append(f"{method.name} {seeds_needed(size, spread, level=comparison.level)}")
    if not found:
        return ""
    what = "5 points" if share else f"{size:.3g}"
    return f"Seeds that would find a difference of {what} four times in five, by this spread: {', '.join(found)}"
