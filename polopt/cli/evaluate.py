"""polopt evaluate."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from polopt.cli import wording
from polopt.cli.command_group import UsageError, checked
from polopt.cli.options import CheckpointOption, JsonOption
from polopt.cli.results import pass_table, return_table


def evaluate(
    folder: Annotated[Path, typer.Argument(help="A finished run, or a model in the Hugging Face format.")],
    tasks: Annotated[
        str | None, typer.Option("--tasks", metavar="RECIPE", help="Whose held-out tasks; the run's own if none.")
    ] = None,
    problems: Annotated[int | None, typer.Option("--problems", min=1, help="How many of them; all if none.")] = None,
    samples: Annotated[int | None, typer.Option("--samples", min=1, help="Answers per problem.")] = None,
    k: Annotated[str, typer.Option("--k", metavar="1,4,8", help="Which pass@k.")] = "1",
    temperature: Annotated[float | None, typer.Option("--temperature")] = None,
    top_k: Annotated[int | None, typer.Option("--top-k", help="1 is greedy.")] = None,
    top_p: Annotated[float | None, typer.Option("--top-p")] = None,
    seed: Annotated[int, typer.Option("--seed")] = 0,
    checkpoint: CheckpointOption = None,
    as_json: JsonOption = False,
) -> None:
    """Held-out accuracy: pass@1 and pass@k with 95 % intervals, per kind of task; of a control run the mean return,
    beside that of its recipe's rules."""
    from polopt.training.trained import kind_of

    if kind_of(folder) == "control":
        given = {"--samples": samples, "--temperature": temperature, "--top-k": top_k, "--top-p": top_p}
        _check_unused({**given, "--checkpoint": checkpoint, "--k": None if k == "1" else k})
        _evaluate_control(folder, tasks, problems, seed, as_json=as_json)
        return
    from polopt.support import Support
    from polopt.training.trained import evaluate_folder

    counts = _counts(k)
    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    given = {name: value for name, value in options.items() if value is not None}
    with checked():
        support = Support(**given) if given else None  # type: ignore[arg-type]
    screen = wording.screen(stderr=as_json)
    with screen.status(f"Judging {folder} …") if screen.is_terminal else checked():
        accuracy = evaluate_folder(
            folder,
            tasks,
            problems=problems,
            samples=samples,
            k=counts,
            support=support,
            seed=seed,
            checkpoint=None if checkpoint is None else wording.checkpoint(checkpoint),
        )
    record = accuracy.record()
    if as_json:
        typer.echo(json.dumps(record, indent=1))
        return
    screen.print(pass_table(record))
    if "length/mean" not in record:
        screen.print(
            "Share of pairs of which the preferred answer is the likelier one; the margin is in nats", style="dim"
        )
        return
    answers = "answer" if accuracy.samples == 1 else "answers"
    screen.print(
        f"{accuracy.samples} {answers} per problem, {record['length/mean']:.1f} tokens on average", style="dim"
    )


def _check_unused(options: Mapping[str, object]) -> None:
    if unused := [name for name, value in options.items() if value is not None]:
        raise UsageError(f"{unused[0]}: a control policy is evaluated in whole episodes as its run ended; leave it out")


def _evaluate_control(folder: Path, tasks: str | None, problems: int | None, seed: int, *, as_json: bool) -> None:
    from polopt.training.control.evaluate import evaluate_control

    screen = wording.screen(stderr=as_json)
    with screen.status(f"Playing {folder} …") if screen.is_terminal else checked():
        score = evaluate_control(folder, tasks, problems=problems, seed=seed)
    if as_json:
        typer.echo(json.dumps(score.record(), indent=1))
    else:
        screen.print(return_table(score.record()))


def _counts(k: str) -> tuple[int, ...]:
    try:
        counts = tuple(sorted({int(part) for part in k.split(",")}))
        if counts[0] < 1:
            raise ValueError
    except ValueError:
        raise UsageError(f"--k {k}: expected whole numbers from 1 up, as in --k 1,4,8") from None
    return counts
