"""Logged transitions: a file of columns, a set of recorded episodes, or what an earlier run has stored."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polopt.config import ConfigError
from polopt.sampling import successors
from polopt.training.control.episode_sets import (
    MINARI,
    Piece,
    is_lerobot,
    is_minari,
    lerobot_pieces,
    minari_folder,
    minari_pieces,
)
from polopt.training.control.transition_store import stored

# Column -> whether it may be left out, as all False.
COLUMNS = {"observation": False, "action": False, "reward": False, "next_observation": False, "terminated": False}
OPTIONAL = ("truncated",)
# Columns that a log may have beside these -> what they hold.
FURTHER = {
    "responses": "several responses to each decision",
    "teacher_mean": "means of a teacher's normal distributions",
    "teacher_log_std": "standard deviations of a teacher's normal distributions",
}


def load_transitions(
    path: Path | str,
    where: str,
    *,
    observations: int,
    action: tuple[int, ...],
    inputs: Mapping[str, int] | None = None,
) -> dict[str, Tensor]:
    """Loads transitions, one a row: observation and next_observation [N, D], action [N] int64 or [N, A], reward,
    terminated, truncated [N], `following` [N], as `sampling.successors` of rows in their order, and, if the log has
    them, responses [N, k], rewards beside the first, and teacher_mean and teacher_log_std [N, A].

    path: an .npz file with these arrays, a .parquet or .csv file with these columns, vectors as lists or in columns
    `observation_0`, `observation_1`, ..., the folder of a run that stored transitions, the folder of a data set of
    Minari or LeRobot (`episode_sets`), or `minari:NAME`. where: the setting. observations: D. action: the shape of an
    action. inputs: the policy's inputs, columns of the log, too, with their numbers.

    Raises:
        ConfigError: naming the file, the column, what was found and the fix.
    """
    path = minari_folder(str(path), where) if str(path).startswith(MINARI) else Path(path)
    if not path.exists():
        raise ConfigError(f"{where}: there is no file or folder {path}")
    inputs = inputs or {}
    table, place = _of_folder(path, where) if path.is_dir() else (_of_file(path, where, inputs), _rows_of(path))
    missing = [name for name in (*COLUMNS, *inputs) if name not in table]
    if missing:
        raise ConfigError(
            f"{where}: {path} has no {', '.join(missing)}, and has {', '.join(sorted(table)) or 'nothing'}; a "
            "transition has observation, action, reward, next_observation, terminated and, if any were, truncated"
        )
    rows = len(table["reward"])
    if not rows:
        raise ConfigError(f"{where}: {path} holds no transitions")
    table.setdefault("truncated", np.zeros(rows, bool))
    shapes = {"observation": (observations,), "next_observation": (observations,), "action": action}
    shapes |= {name: (width,) for name, width in inputs.items()}
    found: dict[str, Tensor] = {}
    for name in (*COLUMNS, *OPTIONAL, *inputs):
        values = np.asarray(table[name])
        expected = (rows, *shapes.get(name, ()))
        if values.shape != expected and values.size == np.prod(expected):
            values = values.reshape(expected)
        if values.shape != expected:
            raise ConfigError(
                f"{where}: {name} of {path} must be of shape {[*expected]}, as the environment's are, found "
                f"{[*values.shape]}"
            )
        found[name] = _column(name, values, where, place)
    for name in FURTHER:
        if name in table:
            found[name] = _column(name, np.asarray(table[name]).reshape(rows, -1), where, place)
    following = table.get("following") if path.is_dir() else None
    return found | {"following": successors(found) if following is None else torch.from_numpy(following)}


def _column(name: str, values: Any, where: str, place: Callable[[int], str]) -> Tensor:
    kind = torch.bool if name in ("terminated", "truncated") else torch.float32
    kind = torch.int64 if name == "action" and values.ndim == 1 else kind
    numbers = values.astype(np.float64)
    bad = ~np.isfinite(numbers)
    if kind != torch.float32:
        bad |= numbers != np.round(numbers)
    if bad.any():
        row = int(bad.reshape(len(bad), -1).any(1).argmax())
        raise ConfigError(f"{where}: {name} of {place(row)} is {values[row]}, which is no {_WORD[kind]}")
    return torch.from_numpy(numbers).to(kind)


_WORD = {torch.bool: "truth value", torch.float32: "finite number", torch.int64: "number of a choice"}


def _rows_of(path: Path) -> Callable[[int], str]:
    return lambda row: f"row {row} of {path}"


def _of_folder(folder: Path, where: str) -> tuple[dict[str, Any], Callable[[int], str]]:
    """Returns the columns of a folder, and how errors name the place of a row."""
    if is_minari(folder):
        return _joined(minari_pieces(folder, where), folder, where)
    if is_lerobot(folder):
        return _joined(lerobot_pieces(folder, where), folder, where)
    return _of_run(folder, where), _rows_of(folder)


def _joined(pieces: Iterable[Piece], folder: Path, where: str) -> tuple[dict[str, Any], Callable[[int], str]]:
    found = [*pieces]
    if not found:
        raise ConfigError(f"{where}: {folder} holds no episodes")
    for piece in found:
        for name, values in piece.columns.items():
            if values.shape[1:] != found[0].columns[name].shape[1:]:
                raise ConfigError(
                    f"{where}: {name} of {piece.place} has rows of shape {[*values.shape[1:]]}, and of "
                    f"{found[0].place} {[*found[0].columns[name].shape[1:]]}"
                )
    ends = np.cumsum([len(piece.columns["reward"]) for piece in found])

    def place(row: int) -> str:
        at = int(np.searchsorted(ends, row, side="right"))
        return f"row {found[at].rows[row - (ends[at - 1] if at else 0)]} of {found[at].place}"

    return {name: np.concatenate([piece.columns[name] for piece in found]) for name in found[0].columns}, place


def _of_run(folder: Path, where: str) -> dict[str, Any]:
    stores = sorted(folder.glob("transitions-*"))
    if not stores:
        raise ConfigError(
            f"{where}: {folder} is no run that stored transitions, and no data set of Minari or LeRobot; name one "
            "of sac or dqn, or a file"
        )
    parts = [stored(store) for store in stores]
    total = sum(len(part["reward"]) for part in parts)
    for part in parts:  # the last row of a store is followed by its own first one
        row = torch.arange(len(part["reward"]))
        part["following"] = ((row + part["following"]) % len(row) - row) % total
    return {name: np.concatenate([part[name].numpy() for part in parts]) for name in parts[0]}


def _of_file(path: Path, where: str, inputs: Collection[str]) -> dict[str, Any]:
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    if path.suffix not in (".parquet", ".csv"):
        raise ConfigError(f"{where}: {path} must end in .npz, .parquet or .csv, or be the folder of a run")
    import pandas

    table = pandas.read_parquet(path) if path.suffix == ".parquet" else pandas.read_csv(path)
    found: dict[str, Any] = {}
    for name in (*COLUMNS, *OPTIONAL, *inputs, *FURTHER):
        if name in table:
            cells = table[name].to_numpy()
            found[name] = np.stack(cells) if cells.dtype == object else cells
        elif parts := sorted((c for c in table if c.startswith(f"{name}_")), key=lambda c: int(c.rsplit("_", 1)[1])):
            found[name] = table[parts].to_numpy()
    return found
