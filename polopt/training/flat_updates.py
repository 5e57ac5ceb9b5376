"""Optimiser steps on single decisions: minibatches are cut by index, metrics are read once an update."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from polopt.algorithm import Algorithm
from polopt.compiled_steps import Columns, CompiledSteps, batch_of, columns_of
from polopt.config import ConfigError
from polopt.experience import Experience
from polopt.extras import EXTRAS
from polopt.fields import SHAPES
from polopt.metrics import logp_mismatch
from polopt.network_training import NetworkTraining
from polopt.objectives import Objective
from polopt.support import Support
from polopt.training.specs import StageSpec
from polopt.updates import Stepper

# Columns that every policy whose decisions can be rows reads, as `extras`.
DECIDED = ("observation", "action", "legal")


def can_be_flat(policy: Any, objective: Objective, experience: Experience, networks: NetworkTraining) -> bool:
    """Tests whether a batch's decisions can be rows of their own without a change of its losses.

    Each decision is evaluated on its own (`policy.per_decision`), and its loss depends on no other one (`Part.binds`),
    or rows have one decision, and none is of a group. Networks learn from rows of one decision.
    """
    reads = objective.active_fields("reads") | networks.reads
    names = {name.removeprefix("extras.") for name in reads if name.startswith("extras.")}
    bound = {objective.binding, networks.binding}
    single = experience.mask.shape[1] == 1 and "group" not in bound
    return (
        getattr(policy, "per_decision", False)
        and (single or (bound == {"decision"} and not networks.active))
        and not objective.active_fields("full_batch_outputs")
        and "is_demonstration" not in experience.extras
        and all(isinstance(experience.extras.get(name), Tensor) for name in names)
    )


def flat(experience: Experience, reads: frozenset[str]) -> Columns:
    """Returns the fields `reads`, and those that the policy reads, with a row for each of the B T decisions: [B T, 1,
    ...], fields of a row repeated. Extras are named extras.NAME. Decisions that the mask leaves out stay masked."""
    B, T = experience.mask.shape
    found = {n: getattr(experience, n) for n in ("mask", "rollout_logp", *reads) if n in SHAPES}
    names = {*(n.removeprefix("extras.") for n in reads if n.startswith("extras.")), *DECIDED}
    extras = {n: experience.extras[n] for n in names if n in experience.extras}

    def by_decision(value: Tensor, per_decision: bool) -> Tensor:
        if T == 1:
            return value
        if not per_decision:
            return value.repeat_interleave(T, 0)
        return value[:, :T].reshape(B * T, 1, *value.shape[2:])

    columns = {n: by_decision(v, v.ndim > 1) for n, v in found.items() if v is not None}
    for name, value in extras.items():
        known = EXTRAS.get(name)
        columns[f"extras.{name}"] = by_decision(value, known.shape[1:2] != () if known else value.shape[1:2] == (T,))
    return columns


class FoundStep(NamedTuple):
    """What a step found. names: of the metrics. metrics: [n] in double precision. logp: [M] before the step.
    gradients: of the policy's parameters, and norm of them all; None if its step was not due."""

    names: tuple[str, ...]
    metrics: Tensor
    logp: Tensor | None = None
    gradients: list[Tensor] | None = None
    norm: Tensor | None = None


class FlatUpdates:
    """Optimiser steps on the decisions of one batch: in each, those of the networks and, where it is due, the policy's.

    Nothing in an update waits for the device: a step whose gradient is not finite is left out by the optimiser, and
    found when the update's metrics are read. Where the policy is `compiled`, a step is one compiled graph.
    """

    def __init__(
        self,
        policy: Any,
        objective: Objective,
        stepper: Stepper,
        clip: float,
        networks: NetworkTraining,
    ) -> None:
        self.policy, self.objective, self.stepper, self.clip = policy, objective, stepper, clip
        self.networks, self.compiled = networks, bool(getattr(policy, "compiled", False))
        self._support = Support()
        self._graphs = CompiledSteps(self._step, self._tensors)

    @property
    def parameters(self) -> Sequence[nn.Parameter]:
        """The parameters that minibatches change."""
        return self.stepper.stepped

    def run(
        self,
        experience: Experience,
        epochs: int,
        minibatches: int,
        generator: torch.Generator,
        see: Callable[[list[Tensor], int, Tensor], None],
    ) -> list[dict[str, float]]:
        """Takes epochs x minibatches steps. Returns the metrics of each. see: called with the gradients, the number of
        decisions and the gradient's norm of each step of the policy in the first epoch, if there are several."""
        own: frozenset[str] = getattr(self.policy, "reads", frozenset())
        columns = flat(experience, self.objective.active_fields("reads") | self.networks.reads | own)
        self._support = experience.support
        if self.compiled:
            self._graphs.begin_batch()
        found: list[FoundStep] = []
        first = None
        for epoch, minibatch in _minibatches(columns, epochs, minibatches, generator):
            step = self._taken(minibatch)
            found.append(step)
            if step.logp is None or step.gradients is None or step.norm is None:
                continue
            if epoch == 0 and minibatches > 1:
                see(step.gradients, len(step.logp), step.norm)
            first = first or (minibatch, step.logp)
        records = _read(found)
        if first is not None and "rollout_logp" in first[0]:
            records[0] |= _mismatch(*first)
        return records

    def _taken(self, columns: Columns) -> FoundStep:
        """Takes the step of one minibatch."""
        due = self.networks.begin_minibatch()
        if self.networks.algorithm.relabel:
            columns = columns_of(self.networks.relabelled(batch_of(columns, self._support)))
        if self.compiled:
            return self._graphs((self._support, due), columns)
        return self._step(columns)

    def _step(self, columns: Columns) -> FoundStep:
        batch = batch_of(columns, self._support)
        record = self.networks.step(batch) if self.networks.active else {}
        if not self.networks.policy_is_due or not self.parameters:
            self.networks.move_targets()
            return FoundStep(*_stacked(record))
        parameters = self.parameters
        evaluation = self.networks.evaluate(batch, self.objective)
        result = self.objective.of_checked(batch, evaluation)
        found = torch.autograd.grad(result.loss, parameters, allow_unused=True)
        norm = nn.utils.get_total_norm([gradient for gradient in found if gradient is not None])
        share = (self.clip / (norm + 1e-6)).clamp(max=1.0)
        for parameter, gradient in zip(parameters, found, strict=True):
            parameter.grad = None if gradient is None else gradient * share.to(gradient)
        self.stepper.step(norm)
        self.networks.move_targets()
        logp = evaluation.logp.detach()
        record |= {"loss": result.loss.detach(), **result.metrics, "grad_norm": norm}
        if batch.rollout_logp is not None:
            apart = torch.where(batch.mask, logp - batch.rollout_logp, -math.inf)
            record["ratio/max"] = apart.max().exp()
        gradients = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]
        return FoundStep(*_stacked(record), logp[:, 0], gradients, norm)

    def _tensors(self) -> Columns:
        own = (*self.policy.named_parameters(), *self.policy.named_buffers())
        found = {f"policy.{name}": value for name, value in own} | self.networks.tensors()
        return found | {f"optimiser.{name}": value for name, value in self.stepper.tensors().items()}


def check_compiled(algorithm: Algorithm, stage: StageSpec, where: str, device: str) -> None:
    """Checks that the steps of an algorithm can be compiled.

    Raises:
        ConfigError: a loss binds decisions together that are not rows of their own, or changes from step to step; or
            networks learn from rows of several decisions; minibatches are split; or there is no compiler.
    """
    fix = "set compiled to false"
    if stage.micro_rows is not None:
        raise ConfigError(
            f"{where}.micro_rows = {stage.micro_rows}: compiled: true evaluates whole minibatches; leave it out, "
            f"or {fix}"
        )
    if algorithm.networks and not algorithm.sampling.single_decisions:
        raise ConfigError(
            f"{where}: compiled: true needs networks that learn from single decisions, as those of "
            f"sampling.TransitionReplay, found {type(algorithm.sampling).__name__}; {fix}"
        )
    allowed = {"decision", "row"} if algorithm.sampling.single_decisions else {"decision"}
    for objective in (algorithm.objective, *(n.objective for n in algorithm.networks if n.objective is not None)):
        if objective.binding not in allowed or objective.required_full_batch_outputs:
            names = sorted({type(p).__name__ for p in objective.active_parts() if p.binds not in allowed})
            found = ", ".join(names) or "statistics of the whole batch"
            raise ConfigError(f"{where}: compiled: true needs a loss of single decisions, found {found}; {fix}")
        if any(True for _ in objective.buffers()):
            names = sorted({type(p).__name__ for p in objective.parts() if any(True for _ in p.buffers(recurse=False))})
            raise ConfigError(
                f"{where}: compiled: true needs an objective without state, found {', '.join(names)}; {fix}"
            )
    if torch.device(device).type == "cpu" and shutil.which(os.environ.get("CXX", "g++")) is None:
        raise ConfigError(f"compiled: true needs a C++ compiler, and g++ is not found; install one, or {fix}")


def _minibatches(
    columns: Columns, epochs: int, count: int, generator: torch.Generator
) -> Iterator[tuple[int, Columns]]:
    """Yields (epoch, minibatch): slices of the columns, which are shuffled once an epoch."""
    rows = len(columns["mask"])
    for epoch in range(epochs):
        shuffled = columns
        if count > 1:
            order = torch.randperm(rows, generator=generator).to(columns["mask"].device)
            shuffled = {name: value[order] for name, value in columns.items()}
        pieces = {name: value.tensor_split(min(count, rows)) for name, value in shuffled.items()}
        for i in range(min(count, rows)):
            yield epoch, {name: values[i] for name, values in pieces.items()}


def _mismatch(columns: Columns, logp: Tensor) -> dict[str, float]:
    if not columns["mask"].any():
        return {}
    found = logp_mismatch(columns["rollout_logp"], logp[:, None], columns["mask"])
    return {
        "mismatch/mean": float(found.mean),
        "mismatch/max": float(found.max),
        "mismatch/kl": float(found.k3),
        "mismatch/ess": float(found.ess_sequence),
    }


def _stacked(record: Mapping[str, Tensor]) -> tuple[tuple[str, ...], Tensor]:
    """Returns the names of metrics, and their values [n] in double precision."""
    values = [value.double() for value in record.values()]
    return tuple(record), torch.stack(values) if values else torch.zeros(0, dtype=torch.float64)


def _read(steps: Sequence[FoundStep]) -> list[dict[str, float]]:
    """Returns the numbers of all steps, read from the device at once."""
    values = iter(torch.cat([step.metrics for step in steps]).tolist())
    return [{name: next(values) for name in step.names} for step in steps]
