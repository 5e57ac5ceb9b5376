"""Optimiser steps on single decisions: minibatches are cut by index, metrics are read once an update."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from polopt.algorithm import Algorithm
from polopt.config import ConfigError
from polopt.experience import Experience
from polopt.extras import EXTRAS
from polopt.fields import SHAPES
from polopt.gradient_passes import Columns, batch_of
from polopt.metrics import logp_mismatch
from polopt.network_training import NetworkTraining
from polopt.objectives import Objective
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


class FlatUpdates:
    """Optimiser steps on the decisions of one batch: in each, those of the networks and, where it is due, the policy's.

    Nothing in an update waits for the device: a step whose gradient is not finite is left out by the optimiser, and
    found when the update's metrics are read.
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
        self.networks = networks

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
        see: Callable[[Sequence[nn.Parameter], int, Tensor], None],
    ) -> list[dict[str, float]]:
        """Takes epochs x minibatches steps. Returns the metrics of each. see: called with the parameters, the number of
        decisions and the gradient's norm after each backward pass of the first epoch, if there are several."""
        own: frozenset[str] = getattr(self.policy, "reads", frozenset())
        columns = flat(experience, self.objective.active_fields("reads") | self.networks.reads | own)
        self.networks.passes.begin_batch()
        metrics: list[dict[str, Tensor]] = []
        first = None
        for epoch, minibatch in _minibatches(columns, epochs, minibatches, generator):
            batch, record = self._step_networks(batch_of(minibatch, experience.support))
            metrics.append(record)
            if not self.networks.policy_is_due or not self.parameters:
                self.networks.move_targets()
                continue
            found = self.networks.passes("policy", self._loss, self.parameters, batch)
            logp = found.found.pop("logp")
            for parameter, gradient in zip(self.parameters, found.gradients, strict=True):
                parameter.grad = gradient
            norm = nn.utils.get_total_norm([gradient for gradient in found.gradients if gradient is not None])
            if epoch == 0 and minibatches > 1:
                see(self.parameters, len(logp), norm)
            nn.utils.clip_grads_with_norm_(self.parameters, self.clip, norm)
            self.stepper.step(norm)
            record |= {"loss": found.loss, **found.found, "grad_norm": norm}
            self.networks.move_targets()
            first = first or (minibatch, logp)
        records = _read(metrics)
        if first is not None and "rollout_logp" in first[0]:
            records[0] |= _mismatch(*first)
        return records

    def _step_networks(self, batch: Experience) -> tuple[Experience, dict[str, Tensor]]:
        """Takes the networks' step. Returns the minibatch as they relabel it, and their metrics."""
        if not self.networks.active:
            return batch, {}
        batch = self.networks.relabelled(batch)
        return batch, self.networks.step(batch)

    def _loss(self, batch: Experience) -> tuple[Tensor, Columns]:
        """Returns the policy's loss, its metrics, and as "logp" [M] the log-probabilities before the step."""
        evaluation = self.networks.evaluate(batch, self.objective)
        result = self.objective.of_checked(batch, evaluation)
        logp, ratio = evaluation.logp.detach(), dict[str, Tensor]()
        if batch.rollout_logp is not None:
            apart = torch.where(batch.mask, logp - batch.rollout_logp, -math.inf)
            ratio = {"ratio/max": apart.max().exp()}
        return result.loss, {**result.metrics, **ratio, "logp": logp[:, 0]}


def check_compiled(algorithm: Algorithm, stage: StageSpec, where: str, device: str) -> None:
    """Checks that the passes of an algorithm's losses can be compiled.

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


def _read(metrics: list[dict[str, Tensor]]) -> list[dict[str, float]]:
    """Returns the numbers of all steps, read from the device at once."""
    values = iter(torch.stack([value.double() for step in metrics for value in step.values()]).tolist())
    return [{name: next(values) for name in step} for step in metrics]
