"""Logged transitions: a file of columns, or what an earlier run has stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polopt.config import ConfigError
from polopt.sampling import successors
from polopt.training.control.transition_store import stored

# Column -> whether it may be left out, as all False.
COLUMNS = {"observation": False, "action": False, "reward": False, "next_observation": False, "terminated": False}
OPTIONAL = ("truncated",)


def load_transitions(path: Path | str, where: str, *, observations: int, action: tuple[int, ...]) -> dict[str, Tensor]:
    """Loads transitions, one a row: observation and next_observation [N, D], action [N] int64 or [N, A], reward,
    terminated, truncated [N], and `following` [N], as `sampling.successors` of rows in their order.

    path: an .npz file with these arrays, a .parquet or .csv file with these columns, vectors as lists or in columns
    `observation_0`, `observation_1`, ..., or the folder of a run that stored transitions. where: the setting.
    observations: D. action: the shape of an action.

    Raises:
        ConfigError: naming the file, the column, what was found and the fix.
    """
    path = Path(path)
    if not path.exists():
        raise ConfigError(f"{where}: there is no file or folder {path}")
    table = _of_run(path, where) if path.is_dir() else _of_file(path, where)
    missing = [name for name in COLUMNS if name not in table]
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
    found: dict[str, Tensor] = {}
    for name in (*COLUMNS, *OPTIONAL):
        values = np.asarray(table[name])
        expected = (rows, *shapes.get(name, ()))
        if values.shape != expected and values.size == np.prod(expected):
            values = values.reshape(expected)
        if values.shape != expected:
            raise ConfigError(
                f"{where}: {name} of {path} must be of shape {[*expected]}, as the environment's are, found "
                f"{[*values.shape]}"
            )
        found[name] = _column(name, values, where, path)
    following = table.get("following") if path.is_dir() else None
    return found | {"following": successors(found) if following is None else torch.from_numpy(following)}


def _column(name: str, values: Any, where: str, path: Path) -> Tensor:
    kind = torch.bool if name in ("terminated", "truncated") else torch.float32
    kind = torch.int64 if name == "action" and values.ndim == 1 else kind
    numbers = values.astype(np.float64)
    bad = ~np.isfinite(numbers)
    if kind != torch.float32:
        bad |= numbers != np.round(numbers)
    if bad.any():
        row = int(bad.reshape(len(bad), -1).any(1).argmax())
        raise ConfigError(f"{where}: {name} of row {row} of {path} is {values[row]}, which is no {_WORD[kind]}")
    return torch.from_numpy(numbers).to(kind)


_WORD = {torch.bool: "truth value", torch.float32: "finite number", torch.int64: "number of a choice"}


def _of_run(folder: Path, where: str) -> dict[str, Any]:
    stores = sorted(folder.glob("transitions-*"))
    if not stores:
        raise ConfigError(f"{where}: {folder} is no run that stored transitions; name one of sac or dqn, or a file")
    parts = [stored(store) for store in stores]
    total = sum(len(part["reward"]) for part in parts)
    for part in parts:  # the last row of a store is followed by its own first one
        row = torch.arange(len(part["reward"]))
        part["following"] = ((row + part["following"]) % len(row) - row) % total
    return {name: np.concatenate([part[name].numpy() for part in parts]) for name in parts[0]}


def _of_file(path: Path, where: str) -> dict[str, Any]:
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    if path.suffix not in (".parquet", ".csv"):
        raise ConfigError(f"{where}: {path} must end in .npz, .parquet or .csv, or be the folder of a run")
    import pandas

    table = pandas.read_parquet(path) if path.suffix == ".parquet" else pandas.read_csv(path)
    found: dict[str, Any] = {}
    for name in (*COLUMNS, *OPTIONAL):
        if name in table:
            cells = table[name].to_numpy()
            found[name] = np.stack(cells) if cells.dtype == object else cells
        elif parts := sorted((c for c in table if c.startswith(f"{name}_")), key=lambda c: int(c.rsplit("_", 1)[1])):
            found[name] = table[parts].to_numpy()
    return found
