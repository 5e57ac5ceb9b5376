"""A rollout worker: it holds the recipe's policy, tasks and engine, and runs its share of each request."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.training.batches import usage_since
from polopt.training.cluster.weights import load_flat
from polopt.training.language_recipe import LanguageRecipe
from polopt.training.spread import at


@dataclasses.dataclass(frozen=True)
class WorkerTask:
    """A share of a request to the workers.

    number: (batch of the stage, request of the batch, share of the request); no two tasks of a run have the same.
    stage: of the source, its tasks and token limit. what: a method of the source. arguments: its. version: of the
    weights. generator: the state that random numbers go on from. rows: about how many rows it will have, for the
    record.
    """

    number: tuple[int, int, int]
    stage: str
    what: str
    arguments: dict[str, Any]
    version: int
    generator: Tensor
    rows: int


@dataclasses.dataclass(frozen=True)
class WorkerResult:
    """The result of a `WorkerTask`. version: of the weights that it was played with. generator: the state of its random
    numbers at the end. spent: as the source's `usage` counts."""

    number: tuple[int, int, int]
    value: Any
    version: int
    generator: Tensor
    spent: dict[str, float]


class RolloutActor:
    """A worker that runs one task at a time. Between tasks it keeps no state but its latest weights."""

    def __init__(self) -> None:
        self.version: int | None = None
        self._domain: Any = None
        self._sources: dict[str, Any] = {}

    def prepare(
        self, domain: Callable[[LanguageRecipe], Any], recipe: str, folder: str, path: Sequence[str], threads: int
    ) -> str:
        """Makes policy, tasks and engine. Returns the name of machine and process.

        domain: makes a recipe's `Domain`. folder, path: where the learner's relative paths begin, and where its modules
        may be.
        """
        with contextlib.suppress(OSError):  # a machine may lack this folder
            at(folder, path)
        found = LanguageRecipe.of_yaml(recipe).model_copy(update={"cluster": None, "threads": threads})
        self._domain = domain(found)
        return f"{socket.gethostname()}, process {os.getpid()}"

    def work(self, task: WorkerTask, weights: Callable[[], Tensor]) -> WorkerResult:
        """Runs one task. weights: returns those of the task's version; called if that version is new here."""
        domain = self._domain
        if self.version != task.version:
            self.version = None  # an interruption leaves no version
            load_flat(domain.policy, weights())
            domain.sync_weights(task.version)
            self.version = task.version
        source = self._source(task.stage)
        source.generator.set_state(task.generator)
        before = source.usage()
        device = domain.policy.device
        arguments = {k: deserialise(v, device) if isinstance(v, Experience) else v for k, v in task.arguments.items()}
        value = getattr(source, task.what)(**arguments)
        return WorkerResult(
            number=task.number,
            value=serialise(value, keep=("answer", "feedback", "kind")),
            version=task.version,
            generator=source.generator.get_state(),
            spent=usage_since(before, source),
        )

    def _source(self, stage: str) -> Any:
        if stage not in self._sources:
            self._sources[stage] = self._domain.source(stage)
        return self._sources[stage]


def serialise(value: Any, keep: Sequence[str] = ()) -> Any:
    """Returns what is sent to another process: of an experience its tensors and the extras named in `keep`, all of it
    on the CPU."""
    if isinstance(value, Experience):
        extras = {k: v for k, v in value.extras.items() if isinstance(v, Tensor) or k in keep}
        value = dataclasses.replace(value, extras=extras, _whole=None, _rows=None, _counted=None)
    return deserialise(value, torch.device("cpu"))


def deserialise(value: Any, device: torch.device) -> Any:
    """Returns a value that was sent, on a device of this process."""
    if isinstance(value, Experience):
        return value if value.device == device else value.to(device)
    if isinstance(value, Evaluation):
        return value.to(device)
    return value.to(device) if isinstance(value, Tensor) else value
