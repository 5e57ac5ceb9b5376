"""The kind of part that turns a gradient into a step, and the rules of the common optimisers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

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

    def tensors(self) -> dict[str, Tensor]:
        """Returns, by name, the tensors that `step` reads or changes beside parameters and gradients."""
        return {}

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


class AveragingStepper(Stepper):
    """A stepper with averages for each parameter, which are made at its first gradient.

    lr: [] in double precision; a tensor, so that a compiled step reads the one of now.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], lr: float) -> None:
        super().__init__(parameters)
        self.lr = torch.tensor(lr, dtype=torch.float64)
        self._averages: dict[nn.Parameter, dict[str, Tensor]] = {}

    def set_lr(self, lr: float) -> None:
        self.lr.fill_(lr)

    def blank(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        """Returns a parameter's averages before the first step, by name."""
        raise NotImplementedError

    def move(
        self,
        parameters: list[Tensor],
        gradients: list[Tensor],
        averages: list[dict[str, Tensor]],
        stopped: Tensor | None,
    ) -> None:
        """Takes the step of parameters, in place and without reading a number. stopped: [] whether none is to be
        taken; None is known not to be."""
        raise NotImplementedError

    @torch.no_grad()
    def step(self, norm: Tensor | None = None) -> None:
        learned = [p for p in self.parameters if p.grad is not None]
        if learned:
            stopped = None if norm is None else ~norm.isfinite()
            gradients = [p.grad for p in learned if p.grad is not None]
            self.move([*learned], gradients, [self._averages_of(p) for p in learned], stopped)

    def _averages_of(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        if parameter not in self._averages:
            self._averages[parameter] = self.blank(parameter)
        return self._averages[parameter]

    def tensors(self) -> dict[str, Tensor]:
        for parameter in self.parameters:
            self._averages_of(parameter)
        return {"lr": self.lr, **self.state()}

    def state(self) -> dict[str, Tensor]:
        return {
            f"{i}.{name}": value
            for i, parameter in enumerate(self.parameters)
            for name, value in self._averages.get(parameter, {}).items()
        }

    def load(self, tensors: Mapping[str, Tensor], place: Place) -> None:
        for i, parameter in enumerate(self.parameters):
            prefix = f"{i}."
            state = {k.removeprefix(prefix): v.clone() for k, v in tensors.items() if k.startswith(prefix)}
            if state:
                self._averages[parameter] = {k: place(v, parameter) for k, v in state.items()}


class AdamW(UpdateRule):
    """Adam with decoupled weight decay; learning rate, betas and weight decay are those of the recipe's `optimiser`.

    Source: arXiv:1711.05101.
    """

    loop_capabilities = frozenset[str]()

    def begin(self, parameters: Sequence[nn.Parameter], settings: OptimiserSettings) -> Stepper:
        return _AdamWStepper(parameters, settings)


class _AdamWStepper(AveragingStepper):
    """The stepper of `AdamW`, by torch's fused kernel."""

    def __init__(self, parameters: Sequence[nn.Parameter], settings: OptimiserSettings) -> None:
        super().__init__(parameters, settings.lr)
        self._betas, self._decay = settings.betas, settings.weight_decay

    def blank(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        step = torch.zeros((), dtype=torch.float32, device=parameter.device)
        return {"step": step, "exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}

    def move(
        self,
        parameters: list[Tensor],
        gradients: list[Tensor],
        averages: list[dict[str, Tensor]],
        stopped: Tensor | None,
    ) -> None:
        adamw(
            parameters,
            gradients,
            [own["exp_avg"] for own in averages],
            [own["exp_avg_sq"] for own in averages],
            [],
            [own["step"] for own in averages],
            fused=True,
            found_inf=None if stopped is None else stopped.float(),
            amsgrad=False,
            beta1=self._betas[0],
            beta2=self._betas[1],
            lr=self.lr,
            weight_decay=self._decay,
            eps=1e-8,
            maximize=False,
        )


class RMSprop(UpdateRule):
    """A step of lr g / (sqrt(v) + eps), v <- decay v + (1 - decay) g^2, with the recipe's lr and weight decay, which is
    added to g.

    decay: of the average of squares.
    eps: added to its root.
    """

    decay: float = 0.99
    eps: float = 1e-5

    def setup(self) -> None:
        if not 0 <= self.decay < 1 or not self.eps > 0:
            raise ValueError(f"updates.RMSprop: need 0 <= decay < 1 and eps > 0, found {self.decay} and {self.eps}")

    def begin(self, parameters: Sequence[nn.Parameter], settings: OptimiserSettings) -> Stepper:
        return _RMSpropStepper(self, parameters, settings)


class _RMSpropStepper(AveragingStepper):
    """The stepper of `RMSprop`."""

    def __init__(self, rule: RMSprop, parameters: Sequence[nn.Parameter], settings: OptimiserSettings) -> None:
        super().__init__(parameters, settings.lr)
        self._rule, self._weight_decay = rule, settings.weight_decay

    def blank(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        return {"square_avg": torch.zeros_like(parameter)}

    def move(
        self,
        parameters: list[Tensor],
        gradients: list[Tensor],
        averages: list[dict[str, Tensor]],
        stopped: Tensor | None,
    ) -> None:
        decay, eps = self._rule.decay, self._rule.eps
        for parameter, gradient, own in zip(parameters, gradients, averages, strict=True):
            gradient = gradient + self._weight_decay * parameter
            average = decay * own["square_avg"] + (1 - decay) * gradient.square()
            step = self.lr.to(parameter) * gradient / (average.sqrt() + eps)
            if stopped is not None:
                average, step = torch.where(stopped, own["square_avg"], average), step.masked_fill(stopped, 0)
            own["square_avg"].copy_(average)
            parameter.sub_(step)
