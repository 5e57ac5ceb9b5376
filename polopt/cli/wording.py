"""The console, and parsing of settings given on the command line."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleDimensions
from rich.table import Table
from rich.text import Text

from polopt import catalogue, recipes
from polopt.cli.command_group import UsageError

if TYPE_CHECKING:
    from polopt.metrics import Interval
    from polopt.training.run import CheckpointChoice

# Width in columns where it is unknown: a pipe, a log.
WIDE = 110


def screen(*, stderr: bool = False) -> Console:
    """Returns the console to write to, without markup, so that brackets are printed as they are."""
    console = Console(stderr=stderr, highlight=False, markup=False)
    if not console.is_terminal:  # width and height together: of a dumb terminal rich ignores one alone
        console.size = ConsoleDimensions(int(os.environ.get("COLUMNS") or WIDE), console.height)
    return console


def sentence(lines: Iterable[tuple[int, str, str]]) -> Table:
    """Tabulates an algorithm's settings, as listed by `polopt.outline`."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for depth, name, value in lines:
        table.add_row("  " * (depth + 1) + name, Text(value))
    return table


def complete_method(incomplete: str) -> list[str]:
    """Lists methods for the shell's completion."""
    return [slug for slug in catalogue.slugs() if slug.startswith(incomplete)]


def complete_recipe(incomplete: str) -> list[str]:
    """Lists recipes for the shell's completion."""
    return [name for name in recipes.names() if name.startswith(incomplete)]


def settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Parses `--set a.b=1` to {"a.b": 1}; values are YAML."""
    from polopt.yaml_data import YamlError, read_yaml

    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"--set {pair}: expected key=value, as in --set stages.rl.steps=50")
        if key.strip() in found:
            raise UsageError(f"--set {key.strip():.100} is given twice; leave one of the two")
        try:
            found[key.strip()] = read_yaml(value, f"--set {key.strip():.100}: the value")
        except YamlError as error:
            raise UsageError(f"{error}; quote it, as in --set 'key=[1, 2]'") from None
    return found


def family(pairs: Sequence[str]) -> dict[str, list[Any]]:
    """Parses `--family a.b=1,2` to {"a.b": [1, 2]}; values are YAML."""
    from polopt.yaml_data import YamlError, read_yaml

    found: dict[str, list[Any]] = {}
    for pair in pairs:
        key, equals, values = (part.strip() for part in pair.partition("="))
        if not equals or not key or not values:
            raise UsageError(f"--family {pair:.100}: expected key=values, as in --family tasks.size=4,8,16")
        if key in found:
            raise UsageError(f"--family {key:.100} is given twice; give all of its values in one")
        try:
            found[key] = read_yaml(f"[{values}]", f"--family {key:.100}: the values")
        except YamlError as error:
            raise UsageError(f"{error}; separate values by commas, as in --family tasks.size=4,8,16") from None
        if any(value is None or isinstance(value, (dict, list)) for value in found[key]):
            raise UsageError(f"--family {key:.100}: values must be numbers, words, true or false, found {values:.100}")
    return found


def with_seed(pairs: Sequence[str] | None, seed: int | None) -> dict[str, Any]:
    """Parses `--set` and `--seed`."""
    return settings(pairs or []) | ({} if seed is None else {"seed": seed})


def method(text: str) -> str | dict[str, Any]:
    """Parses a method: a name, or a name and settings as YAML, `{name: rloo, kl: 0}`."""
    if not text.strip():
        raise UsageError("--method is empty; name one, as in --method gspo, or leave it out")
    if not text.lstrip().startswith("{"):
        return text
    from polopt.yaml_data import read_yaml

    found = read_yaml(text, "--method")
    if not isinstance(found, dict) or "name" not in found:
        raise UsageError(
            f"{text!r:.100} is not a method: give a name, or a name with settings as '{{name: rloo, kl: 0}}'"
        )
    return found


def checkpoint(text: str) -> CheckpointChoice:
    """Parses a checkpoint of a run: its step, best or last."""
    if text == "best":
        return "best"
    if text == "last":
        return "last"
    if text.isascii() and text.isdigit():
        return int(text)
    raise UsageError(f"{text!r} is no checkpoint: give its step, best or last")


def fresh_folder(name: str) -> Path:
    """Returns runs/NAME-1, or the first number that is free."""
    number = 1
    while (path := Path("runs") / f"{name}-{number}").exists():
        number += 1
    return path


def shown_number(interval: Interval, sign: str = "") -> str:
    """Returns a number with its interval."""
    ends = (interval.low, interval.high)
    if not all(map(math.isfinite, ends)):
        return f"{interval.estimate:{sign}.1f} [{_unbounded(interval)}]"
    return f"{interval.estimate:{sign}.1f} [{ends[0]:{sign}.1f}, {ends[1]:{sign}.1f}]"


def shown_share(interval: Interval, sign: str = "", unit: str = " %") -> str:
    """Returns a share in per cent with its interval."""
    ends = (interval.low, interval.high)
    if not all(map(math.isfinite, ends)):
        return f"{100 * interval.estimate:{sign}.1f}{unit} [{_unbounded(interval)}]"
    return f"{100 * interval.estimate:{sign}.1f}{unit} [{100 * ends[0]:{sign}.1f}, {100 * ends[1]:{sign}.1f}]"


def _unbounded(interval: Interval) -> str:
    return "one seed" if interval.n == 1 else f"{interval.n} seeds: no bound yet"
