"""The checkpoints of a run: written in one atomic step, and compared with their digests before they are loaded."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from polopt.training import files

STATE, TENSORS = "state.json", "state.safetensors"


class DamagedCheckpoint(Exception):
    """Raised where a checkpoint is not as it was written; the message is the reason, as part of a sentence."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read. step: of the whole run. tensors, state: as `Checkpoints.write` got them."""

    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]


class Checkpoints:
    """The folder `checkpoints` of a run; each checkpoint is a folder named by its step, with eight digits or more.

    `state.json` holds the state, and of every file that a resumed run reads its sha256: of the tensors, of the run's
    other tensors (reference policies), of each log up to the length that it had, and of `state.json` itself.
    """

    def __init__(self, run: Path) -> None:
        self.run, self.place = run, run / "checkpoints"
        self._digests: dict[tuple[str, int, int], str] = {}

    def folders(self) -> list[Path]:
        """Returns every folder that is named as a checkpoint, whole or not, in the order of its step."""
        named = [p for p in self.place.glob("*") if re.fullmatch("[0-9]{8,}", p.name)]
        return sorted(named, key=lambda p: int(p.name))

    def steps(self) -> list[int]:
        """Returns the steps of the checkpoints that have both files, in order, without reading their content."""
        return [int(p.name) for p in self.folders() if all((p / name).is_file() for name in (STATE, TENSORS))]

    def write(
        self,
        step: int,
        tensors: Mapping[str, Tensor],
        state: Mapping[str, Any],
        logs: Collection[str],
        needed: Collection[str] | None = None,
    ) -> None:
        """Writes a checkpoint beside the others and then gives it its name. logs: file names, synced already. needed:
        names of the run's other tensors that it lists, all if None."""
        self.place.mkdir(exist_ok=True)
        draft = self.place / f".draft-{os.getpid()}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        files.write_tensors(draft / TENSORS, tensors)
        lengths = {name: (self.run / name).stat().st_size for name in logs}
        body: dict[str, Any] = {**state, "step": step}
        body["logs"] = {n: {"bytes": size, "sha256": files.digest(self.run / n, size)} for n, size in lengths.items()}
        body["files"] = {TENSORS: files.digest(draft / TENSORS)}
        others = [p for p in sorted(self.run.glob("*.safetensors")) if needed is None or p.stem in needed]
        body["files"] |= {p.name: self._digest(p) for p in others}
        (draft / STATE).write_text(json.dumps(body | {"sha256": _digest_of(body)}), encoding="utf-8")
        files.sync(draft / STATE)
        files.sync(draft)
        final = self.place / f"{step:08d}"
        self.discard(final)
        draft.rename(final)
        files.sync(self.place)

    def load(self, folder: Path) -> Checkpoint:
        """Loads a checkpoint that was checked before."""
        return Checkpoint(int(folder.name), load_file(folder / TENSORS), self._state(folder))

    def check(self, folder: Path, *, with_logs: bool = True) -> None:
        """Checks that a checkpoint is what was written. with_logs: and the run's logs, up to it.

        Raises:
            DamagedCheckpoint: it is not; the first difference.
        """
        state = self._state(folder)
        for name, expected in state["files"].items():
            file = folder / name if name == TENSORS else self.run / name
            if not file.is_file():
                raise DamagedCheckpoint(f"{name} is missing")
            if (files.digest(file) if name == TENSORS else self._digest(file)) != expected:
                raise DamagedCheckpoint(f"{name} holds other bytes than were written")
        for name, expected in state["logs"].items() if with_logs else ():
            log = self.run / name
            size = log.stat().st_size if log.is_file() else 0
            if size < expected["bytes"]:
                raise DamagedCheckpoint(f"{name} has {size} bytes, and had {expected['bytes']} at this checkpoint")
            if log.is_file() and files.digest(log, expected["bytes"]) != expected["sha256"]:
                raise DamagedCheckpoint(f"{name} holds other lines than were written")

    def _state(self, folder: Path) -> dict[str, Any]:
        try:
            state = json.loads((folder / STATE).read_text(encoding="utf-8"))
            expected = state.pop("sha256")
        except FileNotFoundError:
            raise DamagedCheckpoint(f"{STATE} is missing") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise DamagedCheckpoint(f"{STATE} is not the JSON that was written") from None
        if _digest_of(state) != expected or state["step"] != int(folder.name):
            raise DamagedCheckpoint(f"{STATE} holds other values than were written")
        return state

    def prune(self, keep: Collection[int]) -> None:
        """Removes all checkpoints but those of these steps."""
        for folder in self.folders():
            if int(folder.name) not in keep:
                self.discard(folder)

    def remove_unlisted(self) -> None:
        """Removes those of the run's other tensors that no checkpoint lists; none while a checkpoint is damaged."""
        try:
            listed = {name for folder in self.folders() for name in self._state(folder)["files"]}
        except DamagedCheckpoint:
            return
        for path in self.run.glob("*.safetensors"):
            if path.name not in listed:
                path.unlink()

    def discard(self, folder: Path) -> None:
        """Removes a checkpoint. The folder is renamed first, so that a half-removed one never passes for a whole
        one."""
        if folder.is_dir():
            old = folder.with_name(f".old-{folder.name}-{os.getpid()}")
            shutil.rmtree(old, ignore_errors=True)
            folder.rename(old)
            shutil.rmtree(old)

    def set_aside(self, folder: Path) -> Path:
        """Renames a folder that is no valid checkpoint, so that it can be inspected and is not read again."""
        renamed = folder.with_name(f"damaged-{folder.name}")
        number = 1
        while renamed.exists():
            number += 1
            renamed = folder.with_name(f"damaged-{folder.name}-{number}")
        folder.rename(renamed)
        return renamed

    def clean(self) -> None:
        """Removes the drafts, and the half-removed folders, that a killed process has left."""
        for pattern in (".draft-*", ".old-*"):
            for folder in self.place.glob(pattern):
                shutil.rmtree(folder)

    def _digest(self, file: Path) -> str:
        """Returns the sha256 of a file that is written once for the whole run, computed once for each of its
        versions."""
        found = file.stat()
        key = (file.name, found.st_size, found.st_mtime_ns)
        if key not in self._digests:
            self._digests[key] = files.digest(file)
        return self._digests[key]


def _digest_of(state: Mapping[str, Any]) -> str:
    return files.digest_of(json.dumps(state))
