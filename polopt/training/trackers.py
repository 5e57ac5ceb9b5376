"""Metrics of a run in TensorBoard, Weights & Biases, trackio or MLflow, beside the run's own folder."""

from __future__ import annotations

import abc
import contextlib
import importlib.util
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from polopt.config import ConfigError
from polopt.training.recipe import Recipe

# Identifiers of the run in services, so that a resumed run goes on there.
IDS = "trackers.json"


class Tracker(abc.ABC):
    """Receives numbers by name and step. `extra` is the package that it needs.

    A resumed run sends the steps after its last checkpoint again, with the same numbers.
    """

    extra: ClassVar[str]

    @abc.abstractmethod
    def begin(self, folder: Path, project: str, config: Mapping[str, Any], step: int, run_id: str | None) -> str | None:
        """Starts, or goes on with, the run that is named after its folder.

        config: the recipe by dotted path. step: the first that will be logged. run_id: what `begin` returned when the
        run was begun, None for a new run. Returns the service's identifier, None if it has none.
        """

    @abc.abstractmethod
    def log(self, values: Mapping[str, float], step: int) -> None:
        """Records numbers of one step."""

    @abc.abstractmethod
    def finish(self) -> None:
        """Writes what is not written yet."""


class TensorBoard(Tracker):
    """Event files in FOLDER/tensorboard, for `tensorboard --logdir`."""

    extra = "tensorboard"

    def begin(self, folder: Path, project: str, config: Mapping[str, Any], step: int, run_id: str | None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Events of steps that are sent again are discarded by the reader.
        self.writer = SummaryWriter(str(folder / "tensorboard"), purge_step=step)
        if step == 0:
            self.writer.add_text("recipe", "\n".join(f"    {name}: {value}" for name, value in config.items()))

    def log(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def finish(self) -> None:
        self.writer.close()


class WeightsAndBiases(Tracker):
    """A run of `wandb`, which reads its own settings (WANDB_MODE, WANDB_ENTITY, ...) from the environment."""

    extra = "wandb"

    def begin(self, folder: Path, project: str, config: Mapping[str, Any], step: int, run_id: str | None) -> str | None:
        import wandb

        self.run = wandb.init(
            project=project, name=folder.name, dir=str(folder), config=dict(config), id=run_id, resume="allow"
        )
        # Evaluations come after the step that they belong to, and resumed steps again: `step` is a number like others.
        self.run.define_metric("step")
        self.run.define_metric("*", step_metric="step")
        return self.run.id

    def log(self, values: Mapping[str, float], step: int) -> None:
        self.run.log({**values, "step": step})

    def finish(self) -> None:
        self.run.finish()


class Trackio(Tracker):
    """A run of `trackio`, a dashboard on this machine: `trackio show`."""

    extra = "trackio"

    def begin(self, folder: Path, project: str, config: Mapping[str, Any], step: int, run_id: str | None) -> None:
        import trackio

        self.module = trackio
        # Runs are known by their names there; those of other folders of the same name stay apart.
        trackio.init(
            project=project, name=folder.name, config=dict(config), resume="allow" if step else "never", embed=False
        )

    def log(self, values: Mapping[str, float], step: int) -> None:
        self.module.log(dict(values), step=step)

    def finish(self) -> None:
        self.module.finish()


class MLflow(Tracker):
    """A run of `mlflow`, which reads MLFLOW_TRACKING_URI from the environment."""

    extra = "mlflow"

    def begin(self, folder: Path, project: str, config: Mapping[str, Any], step: int, run_id: str | None) -> str | None:
        import mlflow

        self.module = mlflow
        if run_id is None:
            mlflow.set_experiment(project)
        run = mlflow.start_run(run_id=run_id, run_name=None if run_id else folder.name)
        if run_id is None:
            mlflow.log_params({name: str(value)[:500] for name, value in config.items()})
        return run.info.run_id

    def log(self, values: Mapping[str, float], step: int) -> None:
        self.module.log_metrics(dict(values), step=step)

    def finish(self) -> None:
        self.module.end_run()


TRACKERS: dict[str, type[Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "trackio": Trackio,
    "mlflow": MLflow,
}


class Tracking:
    """A watcher of the training loop that passes numbers on to trackers."""

    def __init__(self, trackers: Sequence[Tracker], folder: Path, project: str) -> None:
        self.folder, self.project = folder, project
        self._waiting, self._begun = list(trackers), list[Tracker]()

    def begin(self, recipe: Recipe, about: Mapping[str, Any]) -> None:
        file = self.folder / IDS
        ids: dict[str, str | None] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        config = dict(_flat("", recipe.model_dump(mode="json")))
        while self._waiting:
            tracker = self._waiting.pop(0)
            known = ids.get(tracker.extra)
            ids[tracker.extra] = tracker.begin(self.folder, self.project, config, about.get("step", 0), known)
            self._begun.append(tracker)
        file.write_text(json.dumps(ids), encoding="utf-8")

    def step(self, record: Mapping[str, Any]) -> None:
        self._log(_numbers(record), record["step"])

    def evaluation(self, record: Mapping[str, Any]) -> None:
        rates = {name: value for name, value in record.items() if name.startswith("pass@")}
        values = {f"heldout/{name}": rate["estimate"] for name, rate in rates.items()}
        values |= {f"heldout/{name}/{end}": rate[end] for name, rate in rates.items() for end in ("low", "high")}
        values |= {f"heldout/{kind}": rate["estimate"] for kind, rate in record.get("kinds", {}).items()}
        self._log(values, record["step"])

    def finish(self) -> None:
        """Finishes what was begun."""
        for tracker in self._begun:
            tracker.finish()

    def _log(self, values: Mapping[str, float], step: int) -> None:
        for tracker in self._begun:
            tracker.log(values, step)


@contextlib.contextmanager
def tracking(recipe: Recipe, folder: Path) -> Iterator[tuple[Tracking, ...]]:
    """The watcher that `logging.report_to` asks for, none if it asks for nothing; finished at the end of the block."""
    names = recipe.logging.report_to
    found = Tracking([TRACKERS[name]() for name in names], folder.absolute(), recipe.logging.project)
    try:
        yield (found,) if names else ()
    finally:
        found.finish()


def require(package: str) -> None:
    """Refuse a tracker whose package is not installed.

    Raises:
        ConfigError: it is not; how to install it.
    """
    if importlib.util.find_spec(package) is None:
        raise ConfigError(f"logging.report_to: {package} is not installed; pip install {package}, or leave it out")


def _numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a step's record."""
    plain = {n: v for n, v in record.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}
    return {name: float(value) for name, value in plain.items() if name != "step" and math.isfinite(value)}


def _flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(f"{path}.{key}" if path else str(key), inner)
    else:
        yield path, value
