"""Calling a part on a batch, whatever its kind: what it said, and the gradient of that."""

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
    """A part called on a batch.

    piece: (rows, index) if the batch is the index-th of the micro-batches of so many rows of another one, which
    `experience` then remembers. part: another part than the one that is checked.
    """

    batch: SampleBatch
    experience: Experience | None = None
    piece: tuple[int, int] | None = None
    part: Part | None = None

    def on(self, part: Part) -> CallResult:
        """The outcome of a fresh copy of the part, so that no call knows of another."""
        return judge(copy.deepcopy(self.part or part), self.batch, self.experience)


@dataclasses.dataclass(frozen=True)
class CallResult:
    """What a part said.

    value: an objective's loss, a scalar; a credit's advantages [B, T]; a reward [B] or [B, T]; of a selection the
    numbers of the rows it kept, and `kept` these rows. grads: an objective's gradient for each leaf of the batch, 0
    where it did not reach. name: what the value is.
    """

    value: Tensor
    grads: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    metrics: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    kept: Experience | None = None
    name: str = ""


def judge(part: Part, batch: SampleBatch, experience: Experience | None = None) -> CallResult:
    """What a part says of a batch, or of a micro-batch of it that is given apart."""
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
    """d loss / d leaf; 0 for a leaf without influence."""
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(leaves, found, strict=True))
