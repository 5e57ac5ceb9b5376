"""Numbers and settings as a person reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from polopt.cli.door import Refused
from polopt.cli.printable import printable
from polopt.yaml_data import YamlError, read_yaml

ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="Spread over a Ray cluster: HOST:PORT, or auto for the one of this machine.",
    ),
]
SPARKS = "▁▂▃▄▅▆▇█"
# Columns where nobody says how wide the page is: a pipe, a log.
WIDE = 110


def screen(*, stderr: bool = False) -> Console:
    """Where to write. Texts are shown as they are: a list in brackets is no markup."""
    console = Console(stderr=stderr, highlight=False, markup=False)
    if not console.is_terminal:
        console.width = WIDE
    return console


def duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s" if minutes < 10 else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def count(number: float) -> str:
    """1,234 or 1.23 million."""
    for size, unit in ((1e9, " billion"), (1e6, " million")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:,.0f}"


def size(number: float) -> str:
    """Bytes."""
    for unit, step in (("GB", 1e9), ("MB", 1e6)):
        if number >= step:
            return f"{number / step:.3g} {unit}"
    return f"{number / 1e3:.0f} kB"


def percent(rate: float) -> str:
    return f"{100 * rate:.1f} %"


def rate(found: Mapping[str, float]) -> str:
    """An estimate with its interval, as evaluations.jsonl holds them: 41.2 % [36.5, 46.1]."""
    return f"{percent(found['estimate'])} [{100 * found['low']:.1f}, {100 * found['high']:.1f}]"


def sparkline(values: Sequence[float], width: int) -> str:
    """The whole series in `width` characters, each the mean of its share."""
    if not values or width < 1:
        return ""
    n = min(width, len(values))
    shares = [values[i * len(values) // n : (i + 1) * len(values) // n] for i in range(n)]
    means = [sum(s) / len(s) for s in shares]
    low, high = min(means), max(means)
    spread = (high - low) or 1.0
    return "".join(SPARKS[min(len(SPARKS) - 1, int((m - low) / spread * len(SPARKS)))] for m in means)


def one_line(text: str, width: int, *, tail: bool = False) -> str:
    """Text on one line of at most `width` characters, its beginning or its tail, without control characters."""
    flat = " ".join(printable(" ".join(text.split()), keep="").split())
    if len(flat) <= width:
        return flat
    return "…" + flat[len(flat) - width + 1 :] if tail else flat[: width - 1] + "…"


def paragraphs(text: str) -> str:
    """A docstring whose prose is one line a paragraph, to be wrapped anew; indented lines stay as they are."""
    found = []
    for block in text.split("\n\n"):
        lines = block.split("\n")
        found.append(block if any(line.startswith(" ") for line in lines) else " ".join(lines))
    return "\n\n".join(found)


def settings(pairs: Sequence[str]) -> dict[str, Any]:
    """`--set a.b=1` as {"a.b": 1}; values are YAML."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise Refused(f"--set {pair}: expected key=value, as in --set stages.rl.steps=50")
        if key.strip() in found:
            raise Refused(f"--set {key.strip():.100} is given twice; leave one of the two")
        try:
            found[key.strip()] = read_yaml(value, f"--set {key.strip():.100}: the value")
        except YamlError as error:
            raise Refused(f"{error}; quote it, as in --set 'key=[1, 2]'") from None
    return found


def method(text: str) -> str | dict[str, Any]:
    """A method as typed: a name, or a name and settings as YAML, `{name: rloo, kl: 0}`."""
    if not text.strip():
        raise Refused("--method is empty; name one, as in --method gspo, or leave it out")
    if not text.lstrip().startswith("{"):
        return text
    found = read_yaml(text, "--method")
    if not isinstance(found, dict) or "name" not in found:
        raise Refused(f"{text!r:.100} is not a method: give a name, or a name with settings as '{{name: rloo, kl: 0}}'")
    return found


def fresh_folder(name: str) -> Path:
    """runs/NAME-1, or the first number that is free."""
    number = 1
    while (path := Path("runs") / f"{name}-{number}").exists():
        number += 1
    return path
