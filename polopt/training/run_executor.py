"""The runs of a comparison, and who trains them: processes here, or whatever else offers desks."""

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

# Seconds between looks at the desks.
PAUSE = 0.25
# Seconds in which the process that trained a run before, and has lost it, must have ended: it looks after every step.
HANDOVER = 600.0


@dataclasses.dataclass
class ComparedRun:
    """One method's run with one seed. deaths: of those who trained it, through no fault of the run's."""

    name: str
    seed: int
    recipe: Recipe
    run: Run
    state: Literal["waiting", "running", "finished"] = "waiting"
    deaths: int = 0


class TrialError(RunError):
    """One run of a comparison failed; `trial` says which. The others keep what they have done."""

    def __init__(self, reason: str, trial: ComparedRun) -> None:
        super().__init__(f"{trial.name} with seed {trial.seed} failed: {reason}")
        self.trial = trial


class RunSlot(abc.ABC):
    """Trains one run after another, each from its last checkpoint on. trial: the one under way."""

    trial: ComparedRun | None = None

    def take(self, trial: ComparedRun) -> None:
        """Begin with a run."""
        self.trial, trial.state = trial, "running"
        self.begin(trial)

    @abc.abstractmethod
    def begin(self, trial: ComparedRun) -> None:
        """Train this run, elsewhere."""

    @abc.abstractmethod
    def look(self) -> None:
        """Note a finished run; let one wait again whose trainer has gone.

        Raises:
            TrialError: it failed.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Stop whatever is under way."""


class RunExecutor(abc.ABC):
    """Where desks are. most: how many there may be."""

    most: int

    @abc.abstractmethod
    def desk(self, number: int) -> RunSlot:
        """One more desk, the number-th from 1 on."""


def train_all(
    trials: Sequence[ComparedRun], offices: RunExecutor, watch: Callable[[Sequence[ComparedRun]], None]
) -> None:
    """Run what is not finished. Whatever ends this, nobody goes on behind it."""
    for trial in trials:
        trial.state = "finished" if trial.run.about.get("finished") else "waiting"
    desks: list[RunSlot] = []
    try:
        while any(trial.state != "finished" for trial in trials):
            for desk in desks:
                desk.look()
            waiting = [trial for trial in trials if trial.state == "waiting"]
            free = [desk for desk in desks if desk.trial is None]
            if waiting and not free and len(desks) < offices.most:
                free = [offices.desk(len(desks) + 1)]
                desks += free
            for trial, desk in zip(waiting, free, strict=False):
                desk.take(trial)
            watch(trials)
            time.sleep(PAUSE)
    finally:
        for desk in desks:
            desk.close()
    watch(trials)


@dataclasses.dataclass
class LocalExecutor(RunExecutor):
    """Processes of this machine, whose output goes to logs in `folder`."""

    folder: Path
    most: int

    def desk(self, number: int) -> RunSlot:
        return LocalProcess(self.folder / f"process-{number}.log")


class LocalProcess(RunSlot):
    """A process that trains one run after another, so that the libraries are loaded once."""

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

    def look(self) -> None:
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
    """A watcher that ends a run which is no longer this process's: nobody else shall write into the folder."""

    def __init__(self, mine: Callable[[], bool]) -> None:
        self.mine = mine

    def begin(self, *_: Any) -> None:
        self._look()

    def step(self, *_: Any) -> None:
        self._look()

    def evaluation(self, *_: Any) -> None:
        self._look()

    def _look(self) -> None:
        if not self.mine():
            sys.exit("the comparison that started this run is gone, or has given it to somebody else")


if __name__ == "__main__":
    parent = os.getppid()
    for line in sys.stdin:
        resume(line.rstrip("\n"), watchers=(ExclusiveWatcher(lambda: os.getppid() == parent),), wait_s=HANDOVER)
