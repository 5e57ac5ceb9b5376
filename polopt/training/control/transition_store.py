"""A store of transitions on disk, which outlives the process that fills it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from polopt.errors import RunError
from polopt.sampling import spanning


class TransitionStore:
    """The latest `capacity` transitions, in preallocated columns that are memory-mapped files of a folder.

    columns: by name, each column's shape without the rows, and its type.
    spare: rows beyond the capacity. A store that is taken back to an earlier `written` is whole if no more than so
        many transitions were written since.

    A checkpoint holds the number `written` alone. Rows that were written after it are written again after a resume; the
    spare rows keep them from overwriting what the resumed run draws from.
    """

    def __init__(
        self, folder: Path, columns: Mapping[str, tuple[tuple[int, ...], torch.dtype]], capacity: int, spare: int
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.capacity, self.size, self.written = capacity, capacity + spare, 0
        layout = {name: [list(shape), str(dtype)] for name, (shape, dtype) in columns.items()} | {"rows": self.size}
        about = folder / "layout.json"
        if not about.exists() or json.loads(about.read_text(encoding="utf-8")) != layout:
            for old in folder.glob("*.bin"):
                old.unlink()
            about.write_text(json.dumps(layout) + "\n", encoding="utf-8")
        self.columns = {
            name: _mapped(folder / f"{name}.bin", (self.size, *shape), dtype)
            for name, (shape, dtype) in columns.items()
        }
        # The largest `written` of any process so far.
        self._most = _mapped(folder / "written.bin", (1,), torch.int64)

    def __len__(self) -> int:
        return min(self.written, self.capacity)

    def add(self, rows: Mapping[str, Tensor]) -> None:
        """Appends rows; the oldest ones leave."""
        count = len(next(iter(rows.values())))
        self._most[0] = max(int(self._most[0]), self.written + count)
        place = torch.arange(self.written, self.written + count) % self.size
        for name, column in self.columns.items():
            column[place] = rows[name].to(column.dtype).cpu()
        self.written += count

    def link(self, earlier: Tensor, later: Tensor) -> None:
        """Marks rows number `later` [M] as following rows number `earlier` [M] in their episodes, in the column
        `following`; an earlier row that is overwritten already is left alone."""
        kept = self.written - earlier <= self.size
        self.columns["following"][earlier[kept] % self.size] = (later - earlier)[kept]

    def draw(
        self, rows: int, generator: torch.Generator, *, n_steps: int = 1, gamma: float | None = None
    ) -> dict[str, Tensor]:
        """Draws rows uniformly with replacement, as transitions of up to `n_steps` decisions (`sampling.spanning`)."""
        back = torch.randint(len(self), (rows,), generator=generator)
        place = (self.written - 1 - back) % self.size
        return spanning(self.columns, place, n_steps, gamma)

    def go_back(self, written: int) -> None:
        """Takes the store back to the transitions that it held after so many were written.

        Raises:
            RunError: some of them have been overwritten since, or were never written here.
        """
        most = int(self._most[0])
        lost = written - min(written, self.capacity) < most - self.size
        if written > most or lost:
            raise RunError(
                f"the run's transitions were written up to number {most}, and the checkpoint needs the "
                f"{min(written, self.capacity)} before number {written}, which "
                f"{'have been overwritten' if lost else 'are not there'}; start the run anew"
            )
        self.written = written


def stored(folder: Path) -> dict[str, Tensor]:
    """Returns the transitions that a store's folder holds, in no particular order."""
    layout = json.loads((folder / "layout.json").read_text(encoding="utf-8"))
    rows = layout.pop("rows")
    count = min(int(_mapped(folder / "written.bin", (1,), torch.int64)[0]), rows)
    return {
        name: _mapped(folder / f"{name}.bin", (rows, *shape), getattr(torch, kind.removeprefix("torch.")))[:count]
        for name, (shape, kind) in layout.items()
    }


def _mapped(path: Path, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    kind = np.dtype(str(dtype).removeprefix("torch."))
    expected = int(np.prod(shape)) * kind.itemsize
    fresh = not path.exists() or path.stat().st_size != expected
    if fresh:
        with path.open("wb") as file:  # sparse: it takes up disk space as it is written
            file.truncate(expected)
    return torch.from_numpy(np.memmap(path, kind, "r+", shape=shape))
