"""Running the command in this process, and reading what a run wrote."""

import json
from collections.abc import Sequence
from pathlib import Path

from click.testing import Result
from typer.testing import CliRunner

from polopt.cli.app import app


def polopt(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def flat(text: str) -> str:
    return " ".join(text.split())


def lines(folder: Path, name: str) -> list[dict]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def without_clocks(records: Sequence[dict]) -> list[dict]:
    return [{k: v for k, v in r.items() if not k.startswith(("seconds", "tokens_per_second"))} for r in records]
