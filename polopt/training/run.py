"""A run is a folder. Whatever instant it is killed at, what is on disk is whole and can be continued."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from safetensors.torch import load_file, save_file
from torch import Tensor

from polopt.errors import UserError

LOGS = ("metrics", "evaluations", "samples")


class RunError(UserError, ValueError):
    """A folder is no run, or is one already. The message says what to do."""


class Run:
    """recipe.yaml, run.json, three logs (metrics, evaluations, samples; one JSON object a line), checkpoints
    and at the end the policy and report.html.

    A checkpoint records how long the logs were, and resuming cuts them back to that: what a killed process
    wrote after its last checkpoint is written again, identically.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def vacant(cls, folder: Path) -> Self:
        """A folder in which a run can be created.

        Raises:
            RunError: the folder holds a run already, so that nothing is ever overwritten, or no folder can be made.
        """
        _try_to_make(folder)
        if (folder / "recipe.yaml").exists():
            raise RunError(f"{folder} holds a run already: continue it with --resume, or name another folder")
        return cls(folder)

    @classmethod
    def create(cls, folder: Path, recipe: str, about: Mapping[str, Any]) -> Self:
        """A new run.

        Raises:
            RunError: as `vacant`.
        """
        run = cls.vacant(folder)
        folder.mkdir(parents=True, exist_ok=True)
        run.describe(about)
        # Last, and at once: a folder with a recipe is a run that can be resumed.
        _write(folder / "recipe.yaml", recipe)
        return run

    @classmethod
    def open(cls, folder: Path) -> Self:
        """An existing run.

        Raises:
            RunError: the folder has no recipe.yaml.
        """
        if not (folder / "recipe.yaml").is_file():
            raise RunError(f"{folder} is not a run: it has no recipe.yaml")
        return cls(folder)

    @property
    def recipe(self) -> Path:
        return self.folder / "recipe.yaml"

    @property
    def about(self) -> dict[str, Any]:
        """run.json: versions, machine, method, whether the run is finished."""
        path = self.folder / "run.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def describe(self, about: Mapping[str, Any]) -> None:
        """Add to run.json."""
        _write(self.folder / "run.json", json.dumps({**self.about, **about}, indent=1))

    @property
    def checkpoint(self) -> int | None:
        """The step that `--resume` would go on from; None for the beginning."""
        found = self._checkpoints()
        return int(found[-1].name) if found else None

    def last(self, name: str) -> dict[str, Any] | None:
        """A log's last whole record, though another process may be writing."""
        path = self.folder / f"{name}.jsonl"
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
        return json.loads(lines[-1]) if lines else None

    def log(self, name: str, record: Mapping[str, Any]) -> None:
        """Append one line to a log."""
        with (self.folder / f"{name}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")

    def read(self, name: str) -> list[dict[str, Any]]:
        """A log's records; the last line of a killed process may be torn and is left out."""
        path = self.folder / f"{name}.jsonl"
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def save(self, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Write a checkpoint beside the others and then, in one atomic step, give it its name."""
        place = self.folder / "checkpoints"
        place.mkdir(exist_ok=True)
        draft = place / f".draft-{os.getpid()}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        save_file({k: v.detach().contiguous().cpu() for k, v in tensors.items()}, draft / "state.safetensors")
        lengths = {name: self._length(name) for name in LOGS}
        (draft / "state.json").write_text(json.dumps({**state, "step": step, "logs": lengths}))
        for file in (draft / "state.safetensors", draft / "state.json", draft):
            _sync(file)
        final = place / f"{step:08d}"
        shutil.rmtree(final, ignore_errors=True)
        draft.rename(final)
        _sync(place)
        for old in self._checkpoints()[:-2]:
            shutil.rmtree(old)

    def restore(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The last whole checkpoint, with the logs cut back to it; None, with empty logs, if there is none."""
        for draft in self.folder.glob("checkpoints/.draft-*"):
            shutil.rmtree(draft)
        found = self._last()
        logs = found[1]["logs"] if found else {}
        for name in LOGS:
            path = self.folder / f"{name}.jsonl"
            if path.exists():
                os.truncate(path, logs.get(name, 0))
        return found

    def _last(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        checkpoints = self._checkpoints()
        if not checkpoints:
            return None
        state = json.loads((checkpoints[-1] / "state.json").read_text())
        return load_file(checkpoints[-1] / "state.safetensors"), state

    def tensors(self, step: int | None = None) -> dict[str, Tensor]:
        """What a checkpoint holds, the last one's or that of `step`; the run stays as it is.

        Raises:
            RunError: there is none; those that there are.
        """
        there = {int(place.name): place for place in self._checkpoints()}
        if not there:
            raise RunError(f"{self.folder} has no checkpoint yet")
        if step is not None and step not in there:
            raise RunError(f"{self.folder} has no checkpoint of step {step}; it has {', '.join(map(str, there))}")
        return load_file(there[max(there) if step is None else step] / "state.safetensors")

    def keep(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Store tensors once for the whole run, such as a reference policy."""
        draft = self.folder / f".{name}.draft"
        save_file({k: v.detach().contiguous().cpu() for k, v in tensors.items()}, draft)
        _sync(draft)
        draft.rename(self.folder / f"{name}.safetensors")

    def kept(self, name: str) -> dict[str, Tensor]:
        return load_file(self.folder / f"{name}.safetensors")

    def _checkpoints(self) -> list[Path]:
        return sorted(p for p in self.folder.glob("checkpoints/*") if p.name.isdigit())

    def _length(self, name: str) -> int:
        path = self.folder / f"{name}.jsonl"
        if not path.exists():
            return 0
        _sync(path)
        return path.stat().st_size


class Witness(Run):
    """A run in a process that leaves the folder to another: it reads, and writes nothing."""

    def describe(self, about: Mapping[str, Any]) -> None:
        pass

    def log(self, name: str, record: Mapping[str, Any]) -> None:
        pass

    def save(self, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        pass

    def keep(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        pass

    def restore(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The last whole checkpoint, as whoever writes has left it."""
        return self._last()


def _try_to_make(folder: Path) -> None:
    """Make the folder and those above it, and take away again what was not there before."""
    made: list[Path] = []
    try:
        for path in (*reversed(folder.parents), folder):
            if not path.is_dir():
                path.mkdir()
                made.append(path)
    except OSError as error:
        raise RunError(f"{folder!s:.160} cannot be a run's folder: {error.strerror}; name another one") from None
    finally:
        for path in reversed(made):
            with contextlib.suppress(OSError):
                path.rmdir()


def _write(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(text, encoding="utf-8")
    _sync(draft)
    draft.rename(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
