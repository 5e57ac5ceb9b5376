"""A run is a folder. Whatever instant its process is killed at, the files on disk are whole and can be continued."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self

from safetensors.torch import load_file
from torch import Tensor

from polopt.errors import ConfigError, PoloptWarning, RunError
from polopt.training import files
from polopt.training.checkpoints import STATE, TENSORS, Checkpoint, Checkpoints, DamagedCheckpoint
from polopt.training.lock import LOCK, OWNER, FolderLock
from polopt.yaml_data import read_yaml_file

LOGS = ("metrics", "evaluations", "others", "samples", "rollouts")
RECIPE, ABOUT = "recipe.yaml", "run.json"
# Identifiers of the run in services that track it, so that a resumed run goes on there.
IDS = "trackers.json"
# A checkpoint of a run: its step, the last one, or the one with the highest held-out estimate.
CheckpointChoice = int | Literal["last", "best"]


class Run:
    """A run's folder: recipe.yaml, run.json, logs (metrics, evaluations, samples, and rollouts if the recipe keeps
    them; one JSON object a line), checkpoints and at the end the policy and report.html.

    A checkpoint records how long the logs were, and resuming cuts them back to that: the lines that a killed process
    wrote after its last checkpoint are written again, identically.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._checkpoints = Checkpoints(folder)
        self._lock: FolderLock | None = None

    @classmethod
    def exists(cls, folder: Path) -> bool:
        """Returns whether a folder holds a run."""
        return (folder / RECIPE).exists()

    @classmethod
    def vacant(cls, folder: Path) -> Self:
        """Returns a run on a folder in which it can be created.

        Raises:
            RunError: the folder holds a run already, so that nothing is ever overwritten, or no folder can be made.
        """
        _try_to_make(folder)
        if cls.exists(folder):
            raise RunError(f"{folder} holds a run already: continue it with --resume, or name another folder")
        return cls(folder)

    @classmethod
    def create(cls, folder: Path, recipe: str, about: Mapping[str, Any]) -> Self:
        """Creates a new run.

        Raises:
            RunError: as `vacant`.
        """
        run = cls.vacant(folder)
        folder.mkdir(parents=True, exist_ok=True)
        run.describe(about)
        # Last, and at once: a folder with a recipe is a run that can be resumed.
        files.write_text(run.recipe, recipe)
        return run

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Opens an existing run.

        Raises:
            RunError: the folder has no recipe.yaml.
        """
        if not (folder / RECIPE).is_file():
            raise RunError(f"{folder} is not a run: it has no recipe.yaml")
        return cls(folder)

    @contextmanager
    def exclusive(self, wait_s: float = 0.0) -> Iterator[None]:
        """Locks the folder during the block, so that no other process trains in it; may be nested.

        wait_s: how long another process may take to leave it.

        Raises:
            RunError: another process trains in it, or a file that would be written is a link to elsewhere.
        """
        self._refuse_links()
        self._lock = FolderLock(self.folder) if self._lock is None else self._lock
        with self._lock.acquired(wait_s):
            yield

    @property
    def recipe(self) -> Path:
        return self.folder / RECIPE

    @property
    def about(self) -> dict[str, Any]:
        """Returns run.json: versions, machine, files that the recipe names, method, whether the run is finished.

        Raises:
            RunError: it is not the JSON that was written.
        """
        path = self.folder / ABOUT
        if not path.exists():
            return {}
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise RunError(
                f"{path} is cut short or damaged; put a copy of it back, or delete it and continue with --anyway"
            )
        return found

    def describe(self, about: Mapping[str, Any]) -> None:
        """Adds entries to run.json."""
        files.write_text(self.folder / ABOUT, json.dumps({**self.about, **about}, indent=1))

    @property
    def checkpoint(self) -> int | None:
        """Returns the step that `--resume` would go on from; None for the beginning."""
        return max(self._checkpoints.steps(), default=None)

    def last(self, name: str) -> dict[str, Any] | None:
        """Returns a log's last whole record, though another process may be writing."""
        path = self.folder / f"{name}.jsonl"
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
        return json.loads(lines[-1]) if lines else None

    def log(self, name: str, record: Mapping[str, Any]) -> None:
        """Appends one line to a log."""
        with (self.folder / f"{name}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")

    def read(self, name: str) -> list[dict[str, Any]]:
        """Returns a log's records; the last line of a killed process may be torn and is left out.

        Raises:
            RunError: another line is not the JSON that was written.
        """
        path = self.folder / f"{name}.jsonl"
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1] if path.exists() else []
        try:
            return [json.loads(line) for line in lines]
        except ValueError:
            raise RunError(f"{path} is damaged: a line of it is not the JSON that was written") from None

    def save(
        self,
        step: int,
        tensors: Mapping[str, Tensor],
        state: Mapping[str, Any],
        *,
        keep: int = 2,
        best: tuple[str, str] | None = None,
        needed: Collection[str] | None = None,
    ) -> None:
        """Writes a checkpoint; then removes all but the last `keep` and the one that is `best`, see `best`. needed:
        names of the tensors, stored by the method `keep`, that this checkpoint needs, all if None; those that no
        checkpoint needs any more are removed."""
        logs = [path.name for path in self._logs() if path.exists()]
        for name in logs:
            files.sync(self.folder / name)
        files.sync(self.folder)
        self._checkpoints.write(step, tensors, state, logs, needed)
        kept = {s for s in self._checkpoints.steps() if s <= step}  # any other is no checkpoint of this run
        found = None if best is None else self.best(*best)
        self._checkpoints.prune({*sorted(kept)[-keep:]} | ({found[0]} if found else set()))
        if needed is not None:
            self._checkpoints.remove_unlisted()

    def best(self, metric: str, stage: str) -> tuple[int, float] | None:
        """Returns (step, estimate) of the checkpoint whose held-out estimate of a metric, as pass@1, is the highest of
        all that are there; the earliest of equals. None if none was evaluated in that stage."""
        steps = set(self._checkpoints.steps())
        found = {
            e["step"]: e[metric]["estimate"]
            for e in self.read("evaluations")
            if e["stage"] == stage and e["step"] in steps and metric in e
        }
        return max(found.items(), key=lambda pair: (pair[1], -pair[0]), default=None)

    def restore(self, *, with_logs: bool = True) -> Checkpoint | None:
        """Loads the last whole checkpoint and cuts the logs back to it; returns None, with empty logs, if there is
        none.

        Newer folders that are named as checkpoints and are not whole are set aside, with one warning. with_logs:
        whether the logs must be unchanged.

        Raises:
            RunError: there are checkpoints, and none is whole; or a file that would be cut is a link to elsewhere.
        """
        self._refuse_links()
        found, damaged = self._newest(with_logs)
        if damaged and found is None:
            step, reason = next(iter(damaged.items()))
            raise RunError(
                f"no checkpoint of {self.folder} is whole (step {int(step.name)}: {reason}); delete "
                f"{self._checkpoints.place} to train it again from the beginning, or continue with --anyway if it was "
                "you who edited a log"
            )
        place = f"step {found.step}" if found else "the beginning"
        if damaged:
            renamed = [f"step {int(p.name)} ({r}) to {self._checkpoints.set_aside(p).name}" for p, r in damaged.items()]
            warnings.warn(
                f"{self.folder}: the run goes on from {place}, since later checkpoints are damaged; set aside: "
                f"{', '.join(renamed)}",
                PoloptWarning,
                stacklevel=2,
            )
        self._checkpoints.clean()
        logs = found.state["logs"] if found else {}
        for path in self._logs():
            if path.exists():
                os.truncate(path, min(path.stat().st_size, logs.get(path.name, {"bytes": 0})["bytes"]))
        return found

    def _logs(self) -> list[Path]:
        """Returns the paths of the logs that there may be, and of the files of rollouts that there are."""
        return [self.folder / f"{name}.jsonl" for name in LOGS] + sorted(self.folder.glob(f"{written_log('*')}.jsonl"))

    def _newest(self, with_logs: bool) -> tuple[Checkpoint | None, dict[Path, str]]:
        """Returns the last whole checkpoint, and the reason why each later one is not whole."""
        damaged: dict[Path, str] = {}
        for folder in reversed(self._checkpoints.folders()):
            try:
                self._checkpoints.check(folder, with_logs=with_logs)
            except DamagedCheckpoint as reason:
                damaged[folder] = str(reason)
            else:
                return self._checkpoints.load(folder), damaged
        return None, damaged

    def tensors(self, which: CheckpointChoice = "last") -> dict[str, Tensor]:
        """Returns the tensors of a checkpoint; the run stays as it is.

        Raises:
            RunError: there is none; those that there are.
        """
        steps = self._checkpoints.steps()
        if not steps:
            raise RunError(f"{self.folder} has no checkpoint yet")
        step = self.step_of(which)
        if step not in steps:
            raise RunError(f"{self.folder} has no checkpoint of step {step}; it has {', '.join(map(str, steps))}")
        folder = self._checkpoints.place / f"{step:08d}"
        try:
            self._checkpoints.check(folder, with_logs=False)
        except DamagedCheckpoint as reason:
            others = ", ".join(str(s) for s in steps if s != step) or "none"
            raise RunError(
                f"the checkpoint of step {step} in {self.folder} is damaged: {reason}; the others are {others}"
            ) from None
        return self._checkpoints.load(folder).tensors

    def step_of(self, which: CheckpointChoice) -> int:
        """Returns the step of a checkpoint.

        Raises:
            RunError: there is none, or `which` is "best" and none was evaluated.
        """
        if isinstance(which, int):
            return which
        if which == "last":
            return max(self._checkpoints.steps())
        about = self.about
        found = self.best(about.get("best_by", "pass@1"), about.get("main_stage", ""))
        if found is None:
            raise RunError(
                f"{self.folder} has no checkpoint that was evaluated in its last stage; give last or a step, and set "
                "checkpoint.best: pass@1 and evaluation.every for the next run"
            )
        return found[0]

    def keep(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Stores tensors once for the whole run, such as a reference policy."""
        draft = self.folder / f".{name}.draft"
        files.write_tensors(draft, tensors)
        files.publish(draft, self.folder / f"{name}.safetensors")

    def kept(self, name: str) -> dict[str, Tensor]:
        return load_file(self.folder / f"{name}.safetensors")

    def _refuse_links(self) -> None:
        """Refuses symbolic links among the files that are written or cut here: in a folder from elsewhere, a link would
        turn that on another file.

        Raises:
            RunError: naming the link and its target.
        """
        written = [RECIPE, ABOUT, IDS, LOCK, OWNER, "checkpoints", "code", "policy", "adapter", "report.html"]
        written += ["solution.json"]
        places = [*(self.folder / name for name in written), *self._logs()]
        places += [place for name in ("code", "policy", "adapter") for place in (self.folder / name).glob("*")]
        for folder in self._checkpoints.folders():
            places += [folder, folder / STATE, folder / TENSORS]
        for place in (*places, *self.folder.glob("*.safetensors")):
            if place.is_symlink():
                raise RunError(
                    f"{place} is a link to {os.readlink(place)}, which training here would write to; put the file "
                    "itself in its place"
                )


class ReadOnlyRun(Run):
    """A run in a process that leaves writing to the main one: it reads the folder, and writes nothing."""

    @contextmanager
    def exclusive(self, wait_s: float = 0.0) -> Iterator[None]:
        """Does nothing: the main process has the lock."""
        yield

    def describe(self, about: Mapping[str, Any]) -> None:
        pass

    def log(self, name: str, record: Mapping[str, Any]) -> None:
        pass

    def save(self, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any], **_: Any) -> None:
        pass

    def keep(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        pass

    def restore(self, *, with_logs: bool = True) -> Checkpoint | None:
        """Loads the last checkpoint, which the main process has checked."""
        folders = self._checkpoints.folders()
        return self._checkpoints.load(folders[-1]) if folders else None


def written_log(name: str) -> str:
    """Returns the log that holds the rollouts which a stage writes under a name."""
    return f"written-{name}"


def finished_run(folder: str, where: str, kind: str) -> Path:
    """Returns the folder of a finished run. where: the setting that names it. kind: of its recipe.

    Raises:
        ConfigError: it is no run, has not finished, or is one of another kind of policy.
    """
    place = Path(folder)
    if not Run.exists(place):
        raise ConfigError(f"{where} = {folder!r:.160} is no run's folder: it has no {RECIPE}; correct the path")
    data = read_yaml_file(place / RECIPE)
    found = data.get("kind", "language") if isinstance(data, Mapping) else "language"
    if found != kind:
        raise ConfigError(f"{where}: {folder} is a run of kind {found}, and this recipe's is {kind}; name another one")
    if not Run(place).about.get("finished") or not (place / "policy" / "config.json").is_file():
        raise ConfigError(
            f"{where}: {folder} is a run that has not finished; continue it with polopt train --resume {folder}"
        )
    return place


def _try_to_make(folder: Path) -> None:
    """Checks that a folder can be made, by making it and those above it, and removes again what was not there before.

    Raises:
        RunError: it cannot be made.
    """
    created: list[Path] = []
    try:
        for path in (*reversed(folder.parents), folder):
            if not path.is_dir():
                path.mkdir()
                created.append(path)
    except OSError as error:
        raise RunError(f"{folder!s:.160} cannot be a run's folder: {error.strerror}; name another one") from None
    finally:
        for path in reversed(created):
            with contextlib.suppress(OSError):
                path.rmdir()
