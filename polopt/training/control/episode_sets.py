"""Recorded episodes in the formats of Minari and LeRobot, as columns of transitions."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from polopt.config import ConfigError
from polopt.step_source import GOAL_KEYS

# Prefix of a setting that names a data set of Minari's own folder.
MINARI = "minari:"
_INSTALL = "pip install 'polopt[minari]'"
Columns = dict[str, np.ndarray]


class Piece(NamedTuple):
    """A part of a log.

    columns: of transitions. place: what errors call it, as `episode_0 of FILE`. rows: [N] the transitions' numbers
    there.
    """

    columns: Columns
    place: str
    rows: np.ndarray


def is_minari(folder: Path) -> bool:
    """Tests whether a folder is a data set of Minari."""
    return any((folder / part / "metadata.json").exists() for part in ("data", "."))


def is_lerobot(folder: Path) -> bool:
    """Tests whether a folder is a data set of LeRobot."""
    return (folder / "meta" / "info.json").exists()


def minari_folder(name: str, where: str) -> Path:
    """Returns the folder of the data set `minari:NAME`, as Minari finds it.

    Raises:
        ConfigError: Minari is not installed, or the set is not on this machine.
    """
    if importlib.util.find_spec("minari") is None:
        raise ConfigError(f"{where} = {name!r:.80}: sets by name need Minari: {_INSTALL}, or name the set's folder")
    import minari

    known = name.removeprefix(MINARI)
    try:
        return Path(minari.load_dataset(known).storage.data_path)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"{where} = {name!r:.80}: {reason}; `minari download {known}` fetches a public one") from None


def minari_pieces(folder: Path, where: str) -> Iterator[Piece]:
    """Reads a data set of Minari's HDF5 format, one piece an episode. Observations are flattened; entries of a
    dictionary follow each other by name, those of a goal-conditioned one as in `source.GOAL_KEYS`. Choices are counted
    from 0.

    Raises:
        ConfigError: naming the file, the episode and the column.
    """
    folder = folder if (folder / "metadata.json").exists() else folder / "data"
    about = _json(folder / "metadata.json", where)
    if about.get("data_format", "hdf5") != "hdf5":
        raise ConfigError(
            f"{where}: {folder} is of Minari's format {about['data_format']!r}, and the one that is read is 'hdf5'; "
            "create it with data_format='hdf5'"
        )
    if importlib.util.find_spec("h5py") is None:
        raise ConfigError(f"{where}: {folder} is a data set of Minari, which h5py reads: {_INSTALL}")
    import h5py

    space = json.loads(about.get("action_space") or "{}")
    path = folder / "main_data.hdf5"
    if not path.exists():
        raise ConfigError(f"{where}: {folder} has no main_data.hdf5")
    with h5py.File(path) as file:
        for number in sorted(int(name.removeprefix("episode_")) for name in file if name.startswith("episode_")):
            place = f"episode_{number} of {path}"
            columns = _minari_episode(file[f"episode_{number}"], int(space.get("start") or 0), place, where)
            yield Piece(columns, place, np.arange(len(columns["reward"])))


def _minari_episode(group: Any, start: int, place: str, where: str) -> Columns:
    names = ("observations", "actions", "rewards", "terminations", "truncations")
    missing = [name for name in names if name not in group]
    if missing:
        raise ConfigError(f"{where}: {place} has no {', '.join(missing)}")
    steps = len(group["rewards"])
    read = {name: flat(group[name], f"{name} of {place}", where) for name in names}
    for name, values in read.items():
        expected = steps + (name == "observations")
        if len(values) != expected:
            raise ConfigError(f"{where}: {name} of {place} has {len(values)} rows, and {steps} rewards need {expected}")
    action = read["actions"]
    return {
        "observation": read["observations"][:-1],
        "next_observation": read["observations"][1:],
        "action": action - start if start and action.ndim == 1 else action,
        "reward": read["rewards"],
        "terminated": read["terminations"],
        "truncated": read["truncations"] & ~read["terminations"],
    }


def flat(values: Any, name: str, where: str) -> np.ndarray:
    """Returns [N, D], or [N] of single numbers, of an array [N, ...] or of a mapping of them."""
    if isinstance(values, Mapping):
        keys = GOAL_KEYS if {*values} == {*GOAL_KEYS} else sorted(values)
        parts = [flat(values[key], f"{name}.{key}", where) for key in keys]
        if len({len(part) for part in parts}) != 1:
            raise ConfigError(f"{where}: entries of {name} have {[len(part) for part in parts]} rows")
        return np.concatenate([part.reshape(len(part), -1) for part in parts], 1)
    found = np.asarray(values[()])
    if found.ndim == 0 or found.dtype.kind not in "biuf":
        raise ConfigError(f"{where}: {name} must be arrays of numbers, found {found.dtype} {[*found.shape]}")
    return found if found.ndim == 1 else found.reshape(len(found), -1)


_LEROBOT = ("observation.state", "action", "episode_index")
_LEROBOT_OPTIONAL = ("frame_index", "next.reward", "next.done", "next.success")


def lerobot_pieces(folder: Path, where: str) -> Iterator[Piece]:
    """Reads a data set of LeRobot, versions 2 and 3: Parquet files in chunks, of an episode each or of several; one
    piece a file. Images are left out.

    A frame's next observation is that of the next frame. A frame with `next.done` terminates its episode, and has its
    own observation as the next one, which no target reads. An episode's last frame without it is left out, since what
    follows is not recorded, and the one before counts as truncated. Without `next.reward` the reward is `next.success`,
    and without both 0.

    Raises:
        ConfigError: naming the file, the column and the row.
    """
    about = _json(folder / "meta" / "info.json", where)
    version = str(about.get("codebase_version", ""))
    if version[:2] not in ("v2", "v3"):
        raise ConfigError(
            f"{where}: {folder / 'meta' / 'info.json'} has codebase_version = {version!r:.20}, and versions v2 and v3 "
            "are read"
        )
    files = sorted(folder.glob("data/chunk-*/*.parquet"))
    if not files:
        raise ConfigError(f"{where}: {folder} has no data/chunk-*/*.parquet")
    found, expected = set[int](), about.get("total_episodes")
    for path in files:
        frames = _frames(path, where)
        found |= {*frames["episode_index"].tolist()}
        columns, rows = _transitions_of(frames)
        yield Piece(columns, str(path), rows)
    if expected is not None and len(found) != expected:
        raise ConfigError(f"{where}: the files of {folder} hold {len(found)} episodes, meta/info.json says {expected}")


def _frames(path: Path, where: str) -> Columns:
    """Reads a file's columns, in the order of its frames."""
    if importlib.util.find_spec("pyarrow") is None:
        raise ConfigError(f"{where}: {path} is a file that pyarrow reads: pip install pyarrow")
    import pyarrow.parquet

    try:
        names = set(pyarrow.parquet.read_schema(path).names)
    except Exception as error:
        raise ConfigError(f"{where}: {path} is no Parquet file: {' '.join(str(error).split())[:150]}") from None
    missing = [name for name in _LEROBOT if name not in names]
    if missing:
        raise ConfigError(f"{where}: {path} has no column {', '.join(missing)}, and has {', '.join(sorted(names))}")
    wanted = [name for name in (*_LEROBOT, *_LEROBOT_OPTIONAL) if name in names]
    table = pyarrow.parquet.read_table(path, columns=wanted)
    frames = {name: _stacked(table.column(name).to_numpy(), f"{name} of", path, where) for name in wanted}
    frames |= {name: frames[name].reshape(-1) for name in (*_LEROBOT_OPTIONAL, "episode_index") if name in frames}
    episode = frames["episode_index"]
    steps = frames.get("frame_index")
    follows = episode[1:] == episode[:-1]
    begins = ~follows if steps is None else steps[1:] != steps[:-1] + 1
    out_of_order = (begins & follows) | (episode[1:] < episode[:-1])
    if out_of_order.any():
        row = int(out_of_order.argmax()) + 1
        raise ConfigError(f"{where}: frames of {path} are out of order: frame_index or episode_index of row {row}")
    return frames


def _stacked(cells: np.ndarray, name: str, path: Path, where: str) -> np.ndarray:
    """Returns lists of one length as an array."""
    if cells.dtype != object:
        return cells
    widths = [np.shape(cell) for cell in cells]
    other = next((row for row, width in enumerate(widths) if width != widths[0]), None)
    if other is not None:
        raise ConfigError(
            f"{where}: {name} row {other} of {path} has shape {[*widths[other]]}, and row 0 has {[*widths[0]]}"
        )
    return np.stack([*cells]) if len(cells) else np.zeros((0,))


def _transitions_of(frames: Columns) -> tuple[Columns, np.ndarray]:
    """Returns transitions, and the frames' rows that they begin with."""
    state, episode = frames["observation.state"], frames["episode_index"]
    state = state.reshape(len(state), -1)
    no = np.zeros(len(episode), bool)
    last = np.append(episode[1:] != episode[:-1], True)[: len(episode)]
    done = frames.get("next.done", no).astype(bool)
    after = np.where((last | done)[:, None], state, np.roll(state, -1, 0))
    left_out = last & ~done
    kept = ~left_out
    columns = {
        "observation": state,
        "next_observation": after,
        "action": frames["action"],
        "reward": frames.get("next.reward", frames.get("next.success", no)),
        "terminated": done,
        "truncated": np.append(left_out[1:], False)[: len(episode)] & ~done,
    }
    return {name: values[kept] for name, values in columns.items()}, kept.nonzero()[0]


def _json(path: Path, where: str) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where}: {path} cannot be read: {' '.join(str(error).split())[:150]}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{where}: {path} must hold an object")
    return found
