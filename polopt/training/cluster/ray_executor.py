"""An executor that trains the runs of a comparison on a Ray cluster."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import polopt
from polopt.config import ConfigError
from polopt.training.launch import resume
from polopt.training.run import RunError
from polopt.training.run_executor import HANDOVER, ComparedRun, ExclusiveWatcher, RunExecutor, RunSlot, TrialError
from polopt.training.spread import at

# Processes that may be lost over one run before the run is taken for the cause.
DEATHS = 5
# Seconds within which every node must have checked the folder.
NODE_TIMEOUT_S = 120.0


class RayExecutor(RunExecutor):
    """An executor of Ray tasks, each with as many CPUs as its run has threads.

    Every node must see the runs' folders under the same path, as on one machine or on a shared file system, and have
    the same polopt and torch. A run whose process or node is lost is continued by another from its last checkpoint.

    Raises:
        ConfigError: a node does not see the folder, or has other versions.
    """

    def __init__(self, ray: Any, folder: Path, most: int | None = None) -> None:
        self.ray = ray
        self.most = most or max(1, int(ray.cluster_resources().get("CPU", 1)))
        _check(ray, folder)

    def open_slot(self, number: int) -> RunSlot:
        return _Task(self.ray)


class _Task(RunSlot):
    """A slot that trains each run in a Ray task of its own, so that its CPUs are free again when it is done."""

    def __init__(self, ray: Any) -> None:
        self.ray, self.result = ray, None

    def begin(self, trial: ComparedRun) -> None:
        cpus = trial.recipe.threads or 1
        # No retries by Ray: the comparison counts losses, and starts the run again.
        task = self.ray.remote(num_cpus=cpus, max_retries=0, scheduling_strategy="SPREAD")(_train)
        place = _take_over(trial.run.folder)
        self.result = task.remote(str(trial.run.folder.resolve()), place, os.getcwd(), sys.path)

    def poll(self) -> None:
        trial, errors = self.trial, self.ray.exceptions
        if trial is None or not self.ray.wait([self.result], timeout=0)[0]:
            return
        try:
            self.ray.get(self.result)
        except errors.RayTaskError as error:
            lines = str(error.cause).strip().splitlines() or [type(error.cause).__name__]
            raise TrialError(lines[0], trial) from error
        except errors.RayError as error:
            trial.deaths += 1
            if trial.deaths >= DEATHS:
                reason = str(error).strip().partition("\n")[0]
                raise TrialError(
                    f"{trial.deaths} processes were lost over it, the last one: {reason}", trial
                ) from error
            trial.state, self.trial = "waiting", None
        else:
            (trial.run.folder / HOLDER).unlink(missing_ok=True)
            trial.state, self.trial = "finished", None

    def close(self) -> None:
        if self.trial is not None:
            self.ray.cancel(self.result, force=True)
            # A task beyond a broken network is not cancelled: it ends when it finds another owner.
            _take_over(self.trial.run.folder)


# The file with the name of the run's owner.
HOLDER = ".holder"


def _take_over(folder: Path) -> str:
    """Writes a new owner's name into a run's folder, and returns it. A process that holds another name ends."""
    name = uuid.uuid4().hex
    (folder / HOLDER).write_text(name)
    return name


def _train(folder: str, holder: str, place: str, path: Sequence[str]) -> None:
    at(place, path)
    holder_file = Path(folder) / HOLDER
    alone = ExclusiveWatcher(lambda: holder_file.is_file() and holder_file.read_text() == holder)
    try:
        resume(folder, watchers=(alone,), wait_s=HANDOVER)
    except SystemExit as end:
        raise RunError(str(end)) from None


def versions() -> dict[str, str]:
    """Returns the versions that must be the same on every node, for the results to be."""
    return {"polopt": polopt.__version__, "torch": torch.__version__, "python": sys.version.split()[0]}


def _sees_folder(folder: str, name: str) -> tuple[bool, dict[str, str]]:
    file = Path(folder) / HOLDER
    return file.is_file() and file.read_text() == name, versions()


def _check(ray: Any, folder: Path) -> None:
    """Checks that every live node with CPUs sees the folder and has the same versions.

    Raises:
        ConfigError: a node does not, or does not answer in time.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    folder.mkdir(parents=True, exist_ok=True)
    name = _take_over(folder)
    nodes = {node["NodeID"]: node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")}
    probe = ray.remote(num_cpus=0, max_retries=0)(_sees_folder)
    probes = {
        probe.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(
            str(folder.resolve()), name
        ): f"{of['NodeManagerHostname']} ({of['NodeManagerAddress']})"
        for node, of in nodes.items()
    }
    ready, late = ray.wait(list(probes), num_returns=len(probes), timeout=NODE_TIMEOUT_S)
    (folder / HOLDER).unlink(missing_ok=True)
    for result in late:
        raise ConfigError(
            f"node {probes[result]} did not answer within {NODE_TIMEOUT_S:.0f} s; look at it with `ray status`"
        )
    for result in ready:
        try:
            sees, has = ray.get(result)
        except ray.exceptions.RayTaskError as error:
            raise ConfigError(f"node {probes[result]} cannot run polopt: {error.cause}") from None
        except ray.exceptions.RayError:
            continue  # a node that is leaving
        if not sees:
            raise ConfigError(
                f"node {probes[result]} does not see {folder.resolve()}; give --run a folder on a file system that all "
                "nodes share"
            )
        if has != versions():
            raise ConfigError(
                f"node {probes[result]} has {has}, and here are {versions()}; install the same everywhere"
            )
