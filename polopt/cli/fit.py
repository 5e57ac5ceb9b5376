"""polopt fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from polopt.cli import wording
from polopt.cli.command_group import checked
from polopt.cli.options import JsonOption, SetOption
from polopt.display.format import duration

if TYPE_CHECKING:
    from polopt.training.fitting import Fit

# Approximate number of lines of a fit without a terminal.
LINES = 10
# Results in the order of printing, and their labels.
INTERVALS = {
    "accuracy": "accuracy",
    "longer": "the longer answer preferred",
    "shorter": "the shorter one preferred",
    "shown_first": "the first answer preferred",
    "shown_second": "the second one preferred",
}
NUMBERS = {"log_loss": "log loss, nats", "brier_score": "Brier score", "calibration_error": "calibration error"}


FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="Pairs as TRL reads them: prompt, chosen, rejected; or ranked lists.")
]
KindOption = Annotated[
    str, typer.Option("--kind", help="bradley-terry, preference or gaussian; '{name: gaussian, link: logistic}'.")
]
ModelOption = Annotated[
    str | None,
    typer.Option("--model", metavar="MODEL", help="A folder or a hub name; a small scorer of bytes if none."),
]
RunOption = Annotated[
    Path | None,
    typer.Option("--run", help="The folder, new or with an unfinished fit of the same settings; runs/FILE-KIND-N."),
]
HeldoutOption = Annotated[
    str | None, typer.Option("--heldout", metavar="FILE", help="Pairs to evaluate on, or a fraction of the prompts.")
]
EnsembleOption = Annotated[
    int | None, typer.Option("--ensemble", metavar="N", min=1, help="Fit N models from different seeds.")
]
MarginOption = Annotated[
    str | None, typer.Option("--margin", metavar="FIELD", help="By how much the preferred answer should be ahead.")
]
ProbabilityOption = Annotated[
    str | None, typer.Option("--probability", metavar="FIELD", help="The share of votes for the preferred answer.")
]
PositionOption = Annotated[
    str | None, typer.Option("--position", metavar="FIELD", help="True where the preferred answer was shown first.")
]
DeviceOption = Annotated[str | None, typer.Option("--device", help="cuda, for a large model; the CPU if none.")]


def fit(
    file: FileArgument,
    kind: KindOption = "bradley-terry",
    model: ModelOption = None,
    run: RunOption = None,
    heldout: HeldoutOption = None,
    ensemble: EnsembleOption = None,
    margin: MarginOption = None,
    probability: ProbabilityOption = None,
    position: PositionOption = None,
    device: DeviceOption = None,
    seed: Annotated[int, typer.Option("--seed")] = 0,
    changes: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fit a reward model or a preference model to pairs, and measure how accurate and how calibrated it is."""
    from polopt.training import fitting
    from polopt.training.fit_recipe import fit_recipe

    with checked():
        recipe = fit_recipe(
            file,
            heldout=_heldout(heldout),
            changes=wording.settings(changes or []),
            preference=_kind(kind),
            model=model,
            members=ensemble,
            margin=margin,
            probability=probability,
            position=position,
            device=device,
            seed=seed,
        )
    folder = run or wording.fresh_folder(f"{Path(file).stem}-{recipe.kind_of_preference}")
    screen = wording.screen(stderr=as_json)
    if fitting.is_finished(recipe, folder):
        screen.print(f"{folder} has finished already: nothing was fitted", soft_wrap=True)
    display = FitDisplay(screen, folder)
    try:
        with display.bar:
            found = fitting.fit(recipe, folder, watchers=(display,))
    except KeyboardInterrupt:
        again = f"The same command with --run {folder} keeps the members that are done, and starts the others over"
        screen.print(f"Stopped. {again}", soft_wrap=True)
        raise typer.Exit(130) from None
    if as_json:
        typer.echo(json.dumps({"folder": str(folder), **found.record}, indent=1, ensure_ascii=False))
        return
    _show(screen, found, folder)


def _kind(text: str) -> str | dict[str, Any]:
    """Parses a kind: a name, or a name and settings as YAML."""
    if not text.lstrip().startswith("{"):
        return text
    from polopt.yaml_data import read_yaml

    found = read_yaml(text, "--kind")
    if not isinstance(found, dict) or "name" not in found:
        raise ValueError(f"--kind {text!r:.100}: give a name, or a name with settings as '{{name: ..., ...}}'")
    return found


def _heldout(text: str | None) -> float | str | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return text


class FitDisplay:
    """A `FitWatcher` that shows a progress bar in a terminal, and about `LINES` lines a member elsewhere."""

    def __init__(self, screen: Console, folder: Path) -> None:
        self.screen, self.folder = screen, folder
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal)
        self._task = self.bar.add_task("", total=None)

    def begin(self, pairs: int, heldout: int, members: int, steps: int) -> None:
        self.members, self.steps = members, steps
        self.screen.print(f"{self.folder}: {pairs:,} pairs to learn from, {heldout:,} held out", soft_wrap=True)
        self.bar.update(self._task, total=members * steps)

    def stepped(self, member: int, step: int, loss: float) -> None:
        which = f"member {member} of {self.members}, " if self.members > 1 else ""
        text = f"{which}loss {loss:.4f}"
        self.bar.update(self._task, completed=(member - 1) * self.steps + step, description=text)
        if not self.screen.is_terminal and (step % max(1, self.steps // LINES) == 0 or step == self.steps):
            self.screen.print(f"{step}/{self.steps}  {text}", soft_wrap=True)


def _show(screen: Console, found: Fit, folder: Path) -> None:
    from polopt.training.fitting import judge_of

    record, held = found.record, found.record["heldout"]
    screen.print(f"{record['kind']} on {held['pairs']:,} held-out pairs of {held['prompts']:,} prompts:")
    table = Table.grid(padding=(0, 2))
    for name, label in INTERVALS.items():
        if held[name] is not None:
            low, high = (-1 if held[name][end] is None else held[name][end] for end in ("low", "high"))
            table.add_row(label, f"{held[name]['estimate']:.1%}", f"[{max(low, 0):.1%}, {high:.1%}] (95%)")
    for name, label in NUMBERS.items():
        after = held["calibrated"]
        note = "" if after is None else f"{after[name]:.4f} with a temperature of the other half of the prompts"
        table.add_row(label, f"{held[name]:.4f}", note)
    table.add_row("temperature", f"{held['temperature']:.3g}", "in the folder; scores are divided by it")
    if record["disagreement"] is not None:
        table.add_row(
            "disagreement", f"{record['disagreement']:.4f}", "standard deviation of the members' probabilities"
        )
    screen.print(table)
    for text in _cautions(record):
        screen.print(f"Caution: {text}.", style="yellow", soft_wrap=True)
    screen.print(f"Judge     {judge_of(folder)}", soft_wrap=True)
    screen.print(f"Results   {folder / 'results.json'}", soft_wrap=True)
    screen.print(f"Time      {duration(sum(member['seconds'] for member in record['members']))}")


def _cautions(record: dict[str, Any]) -> list[str]:
    held = record["heldout"]
    longer, shorter, found = held["longer"], held["shorter"], []
    low = held["accuracy"]["low"]
    if low is None or low <= 0.5:
        found.append("the accuracy is not above chance, 50%, beyond doubt")
    if longer and shorter and (longer["low"] or 0) > (shorter["high"] or 1):
        found.append("it is right where the longer answer is preferred, and less often where the shorter one is")
    if longer and shorter and (shorter["low"] or 0) > (longer["high"] or 1):
        found.append("it is right where the shorter answer is preferred, and less often where the longer one is")
    return found
