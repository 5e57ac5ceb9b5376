"""Optimiser steps on single decisions: minibatches are cut by index, metrics are read once an update."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from polopt.config import ConfigError
from polopt.experience import Experience
from polopt.extras import EXTRAS
from polopt.fields import SHAPES
from polopt.metrics import logp_mismatch
from polopt.network_training import NetworkTraining
from polopt.objectives import Objective
from polopt.support import Support
from polopt.updates import Stepper

# Columns that every policy whose decisions can be rows reads, as `extras`.
DECIDED = ("observation", "action", "legal")
Columns = dict[str, Tensor]


class GradientPass(NamedTuple):
    """One pass over a minibatch. gradients: of the parameters, in their order. metrics: scalars, the loss among them.
    logp: [M] under the policy before the step."""

    gradients: Sequence[Tensor | None]
    metrics: dict[str, Tensor]
    logp: Tensor


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


def batch_of(columns: Mapping[str, Tensor], support: Support) -> Experience:
    """Returns the batch that has these columns."""
    extras = {n.removeprefix("extras."): v for n, v in columns.items() if n.startswith("extras.")}
    fields: dict[str, Any] = {n: v for n, v in columns.items() if not n.startswith("extras.")}
    return Experience(support=support, extras=extras, **fields)


def field_of(batch: Experience, name: str) -> Tensor:
    """Returns a column of a batch by its name among `columns`."""
    found: Tensor = batch.extras[name.removeprefix("extras.")] if name.startswith("extras.") else getattr(batch, name)
    return found


class _Loss(nn.Module):
    """The evaluation of policy and networks, and the objective, as one module."""

    def __init__(self, policy: Any, objective: Objective, support: Support, networks: NetworkTraining) -> None:
        super().__init__()
        self.policy, self.objective, self.support, self.networks = policy, objective, support, networks

    def forward(self, columns: Columns) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        batch = batch_of(columns, self.support)
        evaluation = self.networks.evaluate(batch, self.objective)
        result = self.objective.of_checked(batch, evaluation)
        return result.loss, {"loss": result.loss.detach(), **result.metrics}, evaluation.logp.detach()[:, 0]


class FlatUpdates:
    """Optimiser steps on the decisions of one batch: in each, those of the networks and, where it is due, the policy's.

    compiled: whether evaluation, objective and backward pass run as one compiled graph, which is made for each shape of
    a minibatch.

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
        self.compiled = bool(getattr(policy, "compiled", False))
        self._graphs: dict[tuple[Any, ...], Callable[..., Any]] = {}

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
        see: Callable[[Sequence[nn.Parameter], int], None],
    ) -> list[dict[str, float]]:
        """Takes epochs x minibatches steps. Returns the metrics of each. see: called with the parameters and the number
        of decisions after each backward pass of the first epoch, if there are several."""
        own: frozenset[str] = getattr(self.policy, "reads", frozenset())
        columns = flat(experience, self.objective.active_fields("reads") | self.networks.reads | own)
        self._split_state()
        metrics: list[dict[str, Tensor]] = []
        first = None
        for epoch, minibatch in _minibatches(columns, epochs, minibatches, generator):
            minibatch, record = self._step_networks(minibatch, experience.support)
            metrics.append(record)
            if not self.networks.policy_is_due or not self.parameters:
                self.networks.move_targets()
                continue
            found = self._pass(minibatch, experience.support)
            for parameter, gradient in zip(self.parameters, found.gradients, strict=True):
                parameter.grad = gradient
            if epoch == 0 and minibatches > 1:
                see(self.parameters, len(found.logp))
            norm = nn.utils.clip_grad_norm_(self.parameters, self.clip)
            self.stepper.step(norm)
            record |= {**found.metrics, "grad_norm": norm, **_ratio(minibatch, found.logp)}
            self.networks.move_targets()
            first = first or (minibatch, found.logp)
        records = _read(metrics)
        if first is not None and "rollout_logp" in first[0]:
            records[0] |= _mismatch(*first)
        return records

    def _step_networks(self, columns: Columns, support: Support) -> tuple[Columns, dict[str, Tensor]]:
        """Takes the networks' step. Returns the minibatch as they relabel it, and their metrics."""
        if not self.networks.active:
            return columns, {}
        batch = self.networks.relabelled(batch_of(columns, support))
        relabelled = {name: field_of(batch, name) for part in self.networks.algorithm.relabel for name in part.writes}
        return columns | relabelled, self.networks.step(batch)

    def _pass(self, columns: Columns, support: Support) -> GradientPass:
        if self.compiled:
            return self._compiled_pass(columns, support)
        loss, metrics, logp = _Loss(self.policy, self.objective, support, self.networks)(columns)
        return GradientPass(torch.autograd.grad(loss, self.parameters, allow_unused=True), metrics, logp)

    def _split_state(self) -> None:
        """Finds the policy's tensors once an update: those that learn, and the others. Steps change them in place."""
        learned = {id(p) for p in self.parameters}
        named = dict(self.policy.named_parameters()) if self.compiled else {}
        self._trained = {name: p.detach() for name, p in named.items() if id(p) in learned}
        self._fixed = {name: p.detach() for name, p in named.items() if id(p) not in learned}
        self._fixed |= dict(self.policy.named_buffers())

    @torch.no_grad()
    def _compiled_pass(self, columns: Columns, support: Support) -> GradientPass:
        trained, fixed = self._trained, self._fixed
        key = (support, *((name, *value.shape, value.dtype) for name, value in columns.items()))
        if key not in self._graphs:
            module = _Loss(self.policy, self.objective, support, self.networks)
            self._graphs[key] = _compiled(module, trained, fixed, columns)
        return GradientPass(*self._graphs[key](trained, fixed, columns))


def _compiled(module: _Loss, trained: Columns, fixed: Columns, columns: Columns) -> Callable[..., Any]:
    """Returns a compiled function of parameters, other tensors of the policy and columns: a `GradientPass`, as a tuple.

    The pass is traced through its Python code once, with its backward pass, and the graph of tensors compiled.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    def call(trained: Columns, fixed: Columns, columns: Columns) -> Any:
        with torch.enable_grad():
            leaves = {name: value.detach().requires_grad_() for name, value in trained.items()}
            state = {f"policy.{name}": value for name, value in {**leaves, **fixed}.items()}
            loss, metrics, logp = functional_call(module, state, (columns,))
            gradients = torch.autograd.grad(loss, [*leaves.values()], allow_unused=True)
        return gradients, metrics, logp

    return torch.compile(make_fx(call)(trained, fixed, columns), dynamic=False)


def check_compiled(objective: Objective, where: str, device: str) -> None:
    """Checks that the passes of an objective can be compiled.

    Raises:
        ConfigError: its loss binds decisions together, or changes from step to step; or there is no compiler.
    """
    fix = "set compiled to false"
    if objective.binding != "decision" or objective.required_full_batch_outputs:
        names = sorted({type(p).__name__ for p in objective.active_parts() if p.binds != "decision"})
        found = ", ".join(names) or "statistics of the whole batch"
        raise ConfigError(f"{where}: compiled: true needs a loss of single decisions, found {found}; {fix}")
    if any(True for _ in objective.buffers()):
        names = sorted({type(p).__name__ for p in objective.parts() if any(True for _ in p.buffers(recurse=False))})
        raise ConfigError(f"{where}: compiled: true needs an objective without state, found {', '.join(names)}; {fix}")
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


def _ratio(columns: Columns, logp: Tensor) -> dict[str, Tensor]:
    if "rollout_logp" not in columns:
        return {}
    apart = torch.where(columns["mask"], logp[:, None] - columns["rollout_logp"], -math.inf)
    return {"ratio/max": apart.max().exp()}


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
