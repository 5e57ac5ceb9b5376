"""The kind of part that turns a gradient into a step, and the rules of the common optimisers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from polopt.objectives import Objective
from polopt.part import Part
from polopt.updates.batch_loss import BatchLoss

Place = Callable[[Tensor, nn.Parameter], Tensor]


class OptimiserSettings(Protocol):
    """The settings of a stage's optimiser that update rules read.

    lr: the learning rate. betas: decay of the averages of gradients and of their squares. weight_decay: share of a
    weight, times the rate, that a step takes off. clip: the largest norm of a minibatch's gradient.
    """

    @property
    def lr(self) -> float: ...
    @property
    def betas(self) -> tuple[float, float]: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def clip(self) -> float: ...


@dataclasses.dataclass(frozen=True)
class PlainSettings:
    """Settings of an optimiser outside of recipes."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    clip: float = math.inf


class Stepper:
    """An update rule in use: it changes some parameters and has the state of their optimiser.

    parameters: all that learn.

    A loop calls `step_on_batch` once for each batch, if `reads_batch` is set, and then `step` for each of the batch's
    minibatches, whose clipped gradient is the `grad` of `stepped`; if `after_minibatches` is set, `step_on_batch` last.
    """

    reads_batch: ClassVar[bool] = False
    after_minibatches = False

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = list(parameters)

    def set_lr(self, lr: float) -> None:
        """Sets the learning rate of the next steps."""
        raise NotImplementedError

    @property
    def stepped(self) -> list[nn.Parameter]:
        """The parameters that the gradients of minibatches change; a loop computes no others."""
        return self.parameters

    def begin_batch(self, generator: torch.Generator) -> None:
        """Moves the parameters to where the next batch is sampled, and its gradient taken. generator: of noise."""

    def end_batch(self) -> None:
        """Moves the parameters back if no step was taken since `begin_batch`."""

    def step_on_batch(self, loss: BatchLoss) -> dict[str, float]:
        """Takes the step that depends on the whole batch, and returns its metrics. Without a finite gradient, of which
        `grad_norm` is the norm, there is no step."""
        raise NotImplementedError

    def step(self, norm: Tensor | None = None) -> None:
        """Takes a step along the gradients. norm: theirs before they were clipped, if it has not been read yet: where
        it is not finite there is no step."""
        raise NotImplementedError

    def state(self) -> dict[str, Tensor]:
        """Returns the tensors of a checkpoint: `i.name` of parameter number i, and others by name."""
        raise NotImplementedError

    def load(self, tensors: Mapping[str, Tensor], place: Place) -> None:
        """Restores what `state` returned. place: puts a tensor where a parameter lies."""
        raise NotImplementedError


class UpdateRule(Part):
    """`rule.begin(parameters, settings) -> Stepper`: how the gradient of a loss becomes a step.

    loop_capabilities: what a loop must have for it, beyond AdamW with the recipe's settings:

        optimiser         its optimiser can be another one
        batch             a step can read the whole batch, in one process
        laws              its policies give the law of a decision, of which a divergence is computed
        sampling_weights  the policy can sample with other weights than its own
    """

    loop_capabilities: ClassVar[frozenset[str]] = frozenset({"optimiser"})

    def begin(self, parameters: Sequence[nn.Parameter], settings: OptimiserSettings) -> Stepper:
        """Returns the rule's stepper for a stage, without any state yet."""
        raise NotImplementedError

    def check(self, objective: Objective) -> None:
        """Checks that the rule can step on the objective's loss.

        Raises:
            ValueError: naming what the rule needs.
        """


class OptimiserStepper(Stepper):
    """A stepper by an optimiser of torch."""

    def __init__(self, parameters: Sequence[nn.Parameter], optimiser: torch.optim.Optimizer) -> None:
        super().__init__(parameters)
        self.optimiser = optimiser

    def set_lr(self, lr: float) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = lr

    def step(self, norm: Tensor | None = None) -> None:
        if norm is None:
            self.optimiser.step()
        elif self.optimiser.defaults.get("fused"):  # nothing waits for the device
            self.optimiser.found_inf = (~norm.isfinite()).float()  # type: ignore[attr-defined]
            self.optimiser.step()
        elif norm.isfinite():
            self.optimiser.step()

    def state(self) -> dict[str, Tensor]:
        return {
            f"{i}.{name}": torch.as_tensor(value)
            for i, parameter in enumerate(self.parameters)
            for name, value in self.optimiser.state.get(parameter, {}).items()
        }

    def load(self, tensors: Mapping[str, Tensor], place: Place) -> None:
        for i, parameter in enumerate(self.parameters):
            prefix = f"{i}."
            state = {k.removeprefix(prefix): v.clone() for k, v in tensors.items() if k.startswith(prefix)}
            if state:
                self.optimiser.state[parameter] = {k: place(v, parameter) for k, v in state.items()}


class AdamW(UpdateRule):
    """Adam with decoupled weight decay; learning rate, betas and weight decay are those of the recipe's `optimiser`.

    Source: arXiv:1711.05101.
    """

    loop_capabilities = frozenset[str]()

    def begin(self, parameters: Sequence[nn.Parameter], settings: OptimiserSettings) -> Stepper:
        optimiser = torch.optim.AdamW(
            parameters, lr=settings.lr, betas=settings.betas, weight_decay=settings.weight_decay, fused=True
        )
        return OptimiserStepper(parameters, optimiser)


class RMSprop(UpdateRule):
    """A step of lr g / (sqrt(v) + eps), v <- decay v + (1 - decay) g^2, with the recipe's lr and weight decay.

    decay: of the average of squares.
    eps: added to its root.
    """

    decay: float = 0.99
    eps: float = 1e-5

    def setup(self) -> None:
        if not 0 <= self.decay < 1 or not self.eps > 0:
            raise ValueError(f"updates.RMSprop: need 0 <= decay < 1 and eps > 0, found {self.decay} and {self.eps}")

    def begin(self, parameters: Sequence[nn.Parameter], settings: OptimiserSettings) -> Stepper:
        optimiser = torch.optim.RMSprop(
            parameters, lr=settings.lr, alpha=self.decay, eps=self.eps, weight_decay=settings.weight_decay
        )
        return OptimiserStepper(parameters, optimiser)
