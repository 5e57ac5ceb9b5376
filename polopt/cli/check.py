"""polopt check."""

from __future__ import annotations

from typing import Annotated

import typer

from polopt.cli.options import JsonOption


def check(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="PART...",
            help="my_part.py:MyPart, package.module:loss, objectives.Clip, grpo, trl:dapo, verl:vanilla, ...",
        ),
    ],
    as_json: JsonOption = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="One page of all.")] = False,
    lab: Annotated[bool, typer.Option(help="Measure bias and variance, too.")] = True,
    batch: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.PY:FUNCTION", help="Makes a polopt.checks.SampleBatch from a seed, if yours is special."
        ),
    ] = None,
) -> None:
    """Check a part, a plain loss or a method: which invariances break, and on which smallest example.

    A plain loss is a function of any of logp, old_logp, ref_logp, advantage, mask, entropy, reward, ... [B, T] by name.
    Ends with code 1 if something breaks.
    """
    from polopt.cli import checking

    checking.run(names, as_json=as_json, as_markdown=as_markdown, lab=lab, batch=batch)
