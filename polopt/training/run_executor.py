"""The runs of a comparison, and the executors that train them: in processes of this machine, or elsewhere."""

from __future__ import annotations

import abc
import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from polopt.training.launch import resume
from polopt.training.recipe import Recipe
from polopt.training.run import Run, RunError

# Seconds between polls of the slots.
POLL_S = 0.25
# Seconds within which a run's former process must have ended: it checks its ownership after every step.
HANDOVER = 600.0


@dataclasses.dataclass
class ComparedRun:
    """One method's run with one seed. deaths: processes that were lost while training it, without its being the
    cause."""

    name: str
    seed: int
    recipe: Recipe
    run: Run
    state: Literal["waiting", "running", "finished"] = "waiting"
    deaths: int = 0


class TrialError(RunError):
    """Raised where one run of a comparison failed, the one in `trial`. The others keep their progress."""

    def __init__(self, reason: str, trial: ComparedRun) -> None:
        super().__init__(f"{trial.name} with seed {trial.seed} failed: {reason}")
        self.trial = trial


class RunSlot(abc.ABC):
    """A slot that trains one run after another, each from its last checkpoint on. trial: the one under way."""

    trial: ComparedRun | None = None

    def take(self, trial: ComparedRun) -> None:
        """Begins a run."""
        self.trial, trial.state = trial, "running"
        self.begin(trial)

    @abc.abstractmethod
    def begin(self, trial: ComparedRun) -> None:
        """Starts the training of this run in another process."""

    @abc.abstractmethod
    def poll(self) -> None:
        """Updates the state of the present run: finished, or waiting again if its process was lost.

        Raises:
            TrialError: it failed.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Stops the run under way."""


class RunExecutor(abc.ABC):
    """A source of slots that train runs. most: how many slots there may be."""

    most: int

    @abc.abstractmethod
    def open_slot(self, number: int) -> RunSlot:
        """Opens one more slot, the number-th from 1 on."""


def train_all(
    trials: Sequence[ComparedRun], executor: RunExecutor, watch: Callable[[Sequence[ComparedRun]], None]
) -> None:
    """Trains the runs that are not finished. All slots are closed at the end, also after an error."""
    for trial in trials:
        trial.state = "finished" if trial.run.about.get("finished") else "waiting"
    slots: list[RunSlot] = []
    try:
        while any(trial.state != "finished" for trial in trials):
            for slot in slots:
                slot.poll()
            waiting = [trial for trial in trials if trial.state == "waiting"]
            free = [slot for slot in slots if slot.trial is None]
            if waiting and not free and len(slots) < executor.most:
                free = [executor.open_slot(len(slots) + 1)]
                slots += free
            for trial, slot in zip(waiting, free, strict=False):
                slot.take(trial)
            watch(trials)
            time.sleep(POLL_S)
    finally:
        for slot in slots:
            slot.close()
    watch(trials)


@dataclasses.dataclass
class LocalExecutor(RunExecutor):
    """An executor of processes on this machine, whose output goes to logs in `folder`."""

    folder: Path
    most: int

    def open_slot(self, number: int) -> RunSlot:
        return LocalProcess(self.folder / f"process-{number}.log")


class LocalProcess(RunSlot):
    """A slot whose process trains one run after another, so that the libraries are loaded once."""

    def __init__(self, log: Path) -> None:
        self.log = log
        # Not multiprocessing: that would run the caller's script again in each process.
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "polopt.training.run_executor"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the parent, which ends this one
            )

    def begin(self, trial: ComparedRun) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{trial.run.folder}\n".encode())
        self.process.stdin.flush()

    def poll(self) -> None:
        ended = self.process.poll() is not None
        if self.trial is None:
            return
        if self.trial.run.about.get("finished"):
            self.trial.state, self.trial = "finished", None
        elif ended:
            last = (self.log.read_text(encoding="utf-8", errors="replace").splitlines() or ["it printed nothing"])[-1]
            raise TrialError(f"{last} (all of it in {self.log})", self.trial)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


class ExclusiveWatcher:
    """A watcher that ends the training of a run which another process has taken over, so that only one writes into the
    folder."""

    def __init__(self, is_owner: Callable[[], bool]) -> None:
        self.is_owner = is_owner

    def begin(self, *_: Any) -> None:
        self._check_owner()

    def step(self, *_: Any) -> None:
        self._check_owner()

    def evaluation(self, *_: Any) -> None:
        self._check_owner()

    def _check_owner(self) -> None:
        if not self.is_owner():
            sys.exit("the comparison that started this run has ended, or has assigned it to another process")


if __name__ == "__main__":
    parent = os.getppid()
    for line in sys.stdin:
        resume(line.rstrip("\n"), watchers=(ExclusiveWatcher(lambda: os.getppid() == parent),), wait_s=HANDOVER)
