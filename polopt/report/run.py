"""Reading of a run folder, finished or not: broken files are reported and the rest is read."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from polopt.training.estimates import estimates_of
from polopt.training.files import CLIP
from polopt.yaml_data import YamlError, read_yaml

FILES = ("recipe.yaml", "run.json", "metrics.jsonl", "evaluations.jsonl", "others.jsonl", "samples.jsonl")
LOGS = ("metrics", "evaluations", "others", "samples")

Record = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class RunData:
    """The contents of a run folder.

    troubles: sentences on the contents that could not be read. clip: an animated PNG of one episode, if there is one.
    """

    name: str
    recipe_text: str
    recipe: Record
    info: Record
    metrics: list[Record]
    evaluations: list[Record]
    others: list[Record]
    samples: list[Record]
    troubles: list[str]
    clip: bytes | None = None

    @property
    def solves(self) -> bool:
        """True if the run is a solver's, which has no policy."""
        return self.recipe.get("kind") == "solve"

    @property
    def decision(self) -> str:
        """Returns what one decision is called: a token, but of control runs."""
        return "decision" if self.recipe.get("kind") == "control" else "token"

    def series(self, key: str) -> list[tuple[float, float]]:
        """Returns (step, value) of each training step with a finite number under `key`."""
        points = ((number(m.get("step")), number(m.get(key))) for m in self.metrics)
        return [(x, y) for x, y in points if x is not None and y is not None]

    def stages(self) -> list[tuple[str, float, float]]:
        """Returns (name, first step, last step) of each stretch of consecutive steps of one stage, in one round."""
        result: list[tuple[str, float, float]] = []
        for record in self.metrics:
            name, step = str(record.get("stage", "")), number(record.get("step"))
            if step is None:
                continue
            name += f", round {record['round']}" if "round" in record else ""
            if result and result[-1][0] == name:
                result[-1] = (name, result[-1][1], step)
            else:
                result.append((name, step, step))
        return result


def read_run(folder: Path) -> RunData:
    """Reads a run folder.

    Raises:
        ValueError: not a folder, or none of a run's files in it.
    """
    if not folder.is_dir():
        raise ValueError(f"report: {folder} is not a folder; give the run folder that `polopt train` wrote")
    if not any((folder / name).is_file() for name in FILES):
        raise ValueError(
            f"report: {folder} holds no run, expected one of {', '.join(FILES)}; "
            "give the run folder that `polopt train` wrote"
        )
    troubles: list[str] = []
    recipe_text = _text(folder / "recipe.yaml")
    info = _json(folder / "run.json", troubles)
    recipe = _yaml(recipe_text, troubles)
    lines = {name: _jsonl(folder / f"{name}.jsonl", troubles) for name in LOGS}
    return RunData(
        name=folder.resolve().name,
        recipe_text=recipe_text,
        recipe=recipe,
        info=info,
        troubles=troubles,
        clip=(folder / CLIP).read_bytes() if (folder / CLIP).is_file() else None,
        **lines,
    )


def number(value: Any) -> float | None:
    """Returns the value as a finite float, None for any other value."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def rate(evaluation: Record, key: str | None = None) -> tuple[float, float, float] | None:
    """Returns (estimate, low, high) of one of an evaluation's estimates, its score if no key is given.

    The ends are the estimate where no interval was written.
    """
    key = next(iter(estimates_of(evaluation)), "pass@1") if key is None else key
    value = evaluation.get(key)
    value = value if isinstance(value, dict) else {"estimate": value}
    estimate = number(value.get("estimate"))
    if estimate is None:
        return None
    low, high = number(value.get("low")), number(value.get("high"))
    return estimate, estimate if low is None else low, estimate if high is None else high


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _json(path: Path, troubles: list[str]) -> Record:
    try:
        value = json.loads(_text(path) or "{}")
    except json.JSONDecodeError as error:
        troubles.append(f"{path.name} could not be read: {error}.")
        return {}
    return value if isinstance(value, dict) else {}


def _yaml(text: str, troubles: list[str]) -> Record:
    try:
        value = read_yaml(text, "recipe.yaml")
    except YamlError as error:
        troubles.append(f"{error}.")
        return {}
    return value if isinstance(value, dict) else {}


def _jsonl(path: Path, troubles: list[str]) -> list[Record]:
    records, broken = [], []
    for i, line in enumerate(_text(path).split("\n"), start=1):
        try:
            value = json.loads(line)
            if not isinstance(value, dict):
                raise ValueError
            records.append(value)
        except ValueError:
            if line.strip():
                broken.append(i)
    if broken:
        where = ", ".join(map(str, broken[:5])) + (", ..." if len(broken) > 5 else "")
        troubles.append(f"{path.name}: {len(broken)} unreadable line(s) left out (line {where}).")
    return records
