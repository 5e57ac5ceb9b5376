"""Calls of a part of any kind on a batch: its output, and the gradient of the output."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import torch
from torch import Tensor

from polopt.checks.sample_batches import SampleBatch
from polopt.credit import Credit
from polopt.experience import Experience
from polopt.objectives import Objective
from polopt.part import Part


@dataclasses.dataclass(frozen=True, eq=False)
class PartCall:
    """A call of a part on a batch.

    piece: (rows, index) if the batch is the index-th micro-batch of that many rows of another batch; `experience` then
        refers to that full batch.
    part: a part to call in place of the one that is checked.
    """

    batch: SampleBatch
    experience: Experience | None = None
    piece: tuple[int, int] | None = None
    part: Part | None = None

    def on(self, part: Part) -> CallResult:
        """Returns the result of calling a fresh copy of the part, so that no state is shared between calls."""
        return call_part(copy.deepcopy(self.part or part), self.batch, self.experience)


@dataclasses.dataclass(frozen=True)
class CallResult:
    """The output of a part.

    value: an objective's loss, a scalar; a credit's advantages [B, T]; a reward [B] or [B, T]; for a selection, the
        indices of the rows it kept.
    grads: an objective's gradient for each leaf of the batch, 0 for a leaf without influence.
    kept: the rows that a selection kept.
    name: a name for the value.
    """

    value: Tensor
    grads: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    metrics: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    kept: Experience | None = None
    name: str = ""


def call_part(part: Part, batch: SampleBatch, experience: Experience | None = None) -> CallResult:
    """Calls a part on a batch, or on a micro-batch of it that is passed as `experience`."""
    experience = batch.experience if experience is None else experience
    if not isinstance(part, Objective):
        found = part(experience)
        if isinstance(found, Experience):
            return CallResult(found.extras["row"], kept=found, name="choice of rows")
        return CallResult(found, name="credit" if isinstance(part, Credit) else "reward")
    leaves = {k: v.detach().clone().requires_grad_() for k, v in batch.leaves.items()}
    loss, metrics = part(experience, dataclasses.replace(batch, leaves=leaves).evaluation())
    return CallResult(loss.detach(), gradients(loss, leaves), metrics, name="loss")


def gradients(loss: Tensor, leaves: dict[str, Any]) -> dict[str, Tensor]:
    """Computes d loss / d leaf; 0 for a leaf without influence."""
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(leaves, found, strict=True))
