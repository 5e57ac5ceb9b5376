"""Trackers that send a run's metrics to TensorBoard, Weights & Biases, trackio or MLflow."""

from __future__ import annotations

import abc
import contextlib
import io
import json
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from polopt.errors import PoloptWarning
from polopt.training import files
from polopt.training.estimates import estimates_of
from polopt.training.recipe import Recipe
from polopt.training.run import IDS, Run
from polopt.yaml_data import by_path


class Tracker(abc.ABC):
    """A service that receives numbers by name and step. `extra` is the package that it needs.

    A resumed run sends again, with the same numbers, the steps after its last checkpoint and the evaluations at it.
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
    def finish(self, error: BaseException | None) -> None:
        """Writes the numbers that are not written yet. error: the exception that ended the run, None if it came to its
        end."""


class TensorBoard(Tracker):
    """A tracker that writes event files in FOLDER/tensorboard, for `tensorboard --logdir`."""

    extra = "tensorboard"

    def begin(self, folder: Path, project: str, config: Mapping[str, Any], step: int, run_id: str | None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Readers discard earlier events from this step on: they are sent again.
        self.writer = SummaryWriter(str(folder / "tensorboard"), purge_step=step)
        self.writer.add_text("recipe", "\n".join(f"    {name}: {value}" for name, value in config.items()), step)

    def log(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def finish(self, error: BaseException | None) -> None:
        self.writer.close()


class WeightsAndBiases(Tracker):
    """A tracker of `wandb`, which reads its own settings (WANDB_MODE, WANDB_ENTITY, ...) from the environment."""

    extra = "wandb"

    def begin(self, folder: Path, project: str, config: Mapping[str, Any], step: int, run_id: str | None) -> str | None:
        import wandb

        self.run = wandb.init(
            project=project,
            name=folder.name,
            dir=str(folder),
            config=dict(config),
            id=run_id,
            resume="allow",
            # The terminal is the live page's.
            settings=wandb.Settings(silent=True, console="off"),
        )
        # Evaluations come after the step that they belong to, and resumed steps again: `step` is a number like others.
        self.run.define_metric("step")
        self.run.define_metric("*", step_metric="step")
        return self.run.id

    def log(self, values: Mapping[str, float], step: int) -> None:
        self.run.log({**values, "step": step})

    def finish(self, error: BaseException | None) -> None:
        self.run.finish(exit_code=0 if error is None else 1)


class Trackio(Tracker):
    """A tracker of `trackio`, a dashboard on this machine: `trackio show`. A resumed run goes on with the newest run of
    its name there, since trackio finds runs by name alone."""

    extra = "trackio"

    def begin(self, folder: Path, project: str, config: Mapping[str, Any], step: int, run_id: str | None) -> str | None:
        import trackio

        self.module = trackio
        resume = "never" if run_id is None else "allow"
        run = trackio.init(project=project, name=folder.name, config=dict(config), resume=resume, embed=False)
        return str(run.id)

    def log(self, values: Mapping[str, float], step: int) -> None:
        self.module.log(dict(values), step=step)

    def finish(self, error: BaseException | None) -> None:
        self.module.finish()


class MLflow(Tracker):
    """A tracker of `mlflow`, which reads MLFLOW_TRACKING_URI from the environment. `pass@1` is `pass_at_1` there, and
    other characters that its names cannot have are `_`."""

    extra = "mlflow"

    def begin(self, folder: Path, project: str, config: Mapping[str, Any], step: int, run_id: str | None) -> str | None:
        import mlflow

        self.module = mlflow
        if run_id is None:
            mlflow.set_experiment(project)
        run = mlflow.start_run(run_id=run_id, run_name=None if run_id else folder.name)
        if run_id is None:
            mlflow.log_params({self.name(name): str(value)[:500] for name, value in config.items()})
        return str(run.info.run_id)

    def log(self, values: Mapping[str, float], step: int) -> None:
        self.module.log_metrics({self.name(name): value for name, value in values.items()}, step=step)

    def finish(self, error: BaseException | None) -> None:
        stopped = "KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED"
        self.module.end_run("FINISHED" if error is None else stopped)

    @staticmethod
    def name(ours: str) -> str:
        """Returns a name in the characters that MLflow allows: letters, digits and _-.: /."""
        return re.sub(r"[^\w\-.: /]", "_", ours.replace("@", "_at_"), flags=re.ASCII)[:250]


TRACKERS: dict[str, type[Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "trackio": Trackio,
    "mlflow": MLflow,
}


class Tracking:
    """A watcher of the training loop that passes numbers on to trackers.

    A tracker that raises, as where its server is down, is dropped with a warning, and the run goes on.
    """

    def __init__(self, trackers: Sequence[Tracker], folder: Path, project: str) -> None:
        self.folder, self.project = folder, project
        self._trackers = list(trackers)

    def begin(self, recipe: Recipe, about: Mapping[str, Any]) -> None:
        file, step = self.folder / IDS, about.get("step", 0)
        ids = _read_ids(file)
        config = dict(by_path(recipe.model_dump(mode="json")))

        def begin(tracker: Tracker) -> None:
            with _quiet():
                known = ids.get(tracker.extra)
                ids[tracker.extra] = tracker.begin(self.folder, self.project, config, step, known)

        self._each(begin)
        files.write_text(file, json.dumps(ids))
        # Made at the checkpoint that the run goes on from, and discarded with what came after it.
        for record in Run(self.folder).read("evaluations") if step else ():
            if record["step"] >= step:
                self.evaluation(record)

    def step(self, record: Mapping[str, Any]) -> None:
        self._log(_numbers(record), record["step"])

    def evaluation(self, record: Mapping[str, Any]) -> None:
        rates = estimates_of(record)
        values = {f"heldout/{name}": rate["estimate"] for name, rate in rates.items()}
        values |= {f"heldout/{name}_{end}": rate[end] for name, rate in rates.items() for end in ("low", "high")}
        values |= {f"heldout/{kind}": rate["estimate"] for kind, rate in record.get("kinds", {}).items()}
        self._log({name: value for name, value in values.items() if math.isfinite(value)}, record["step"])

    def finish(self, error: BaseException | None = None) -> None:
        """Finishes the trackers. error: the exception that ended the run."""

        def finish(tracker: Tracker) -> None:
            with _quiet():
                tracker.finish(error)

        self._each(finish)

    def _log(self, values: Mapping[str, float], step: int) -> None:
        self._each(lambda tracker: tracker.log(values, step))

    def _each(self, work: Callable[[Tracker], None]) -> None:
        for tracker in [*self._trackers]:
            try:
                work(tracker)
            except Exception as error:
                self._trackers.remove(tracker)
                with contextlib.suppress(Exception), _quiet():
                    tracker.finish(error)
                found = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".rstrip(". :")
                warnings.warn(
                    f"logging.report_to: {tracker.extra} failed ({found}) and gets no more of this run, which goes on; "
                    "its numbers are in metrics.jsonl",
                    PoloptWarning,
                    stacklevel=2,
                )


@contextlib.contextmanager
def tracking(recipe: Recipe, folder: Path) -> Iterator[tuple[Tracking, ...]]:
    """Yields the watcher of the trackers in `logging.report_to`, none if there are none; finished with the block."""
    names = recipe.logging.report_to
    if not names:
        yield ()
        return
    found = Tracking([TRACKERS[name]() for name in names], folder.absolute(), recipe.logging.project)
    try:
        yield (found,)
    except BaseException as error:
        found.finish(error)
        raise
    found.finish()


def _read_ids(file: Path) -> dict[str, str | None]:
    """Reads the run's identifiers in the services; if the file cannot be read, new runs are begun."""
    try:
        found = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except ValueError:
        found = {}
    return dict(found) if isinstance(found, dict) else {}


class _NullStream(io.StringIO):
    """A stream that discards printed text; a live page still draws on the stream that it replaces."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self.rich_proxied_file = getattr(stream, "rich_proxied_file", stream)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Discards printed text during the block: services print links and logos, and prompt in a terminal, which would
    disturb a live page there."""
    with (
        contextlib.redirect_stdout(_NullStream(sys.stdout)),
        contextlib.redirect_stderr(_NullStream(sys.stderr)),
    ):
        yield


def _numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """Returns the finite numbers of a step's record."""
    plain = {n: v for n, v in record.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}
    return {name: float(value) for name, value in plain.items() if name != "step" and math.isfinite(value)}
