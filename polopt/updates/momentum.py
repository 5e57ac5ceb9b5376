"""Averages of policy gradients that stay unbiased although the policy moves: by extrapolation, or by curvature."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from polopt.evaluation import add_metrics
from polopt.objectives import Objective, PolicyGradient, Surrogate
from polopt.updates.batch_loss import BatchLoss, joined, move
from polopt.updates.parts import OptimiserSettings, Place, Stepper, UpdateRule


class _Momentum(UpdateRule):
    """d <- (1 - eta) d + eta g, theta <- theta - lr d / |d|, with eta = max(least, (2 / (t + 2))^power) in step t >= 0.

    power: of eta's decay; 0 has no memory: eta = 1.
    least: the lower bound of eta.
    normalised: whether d is divided by its norm.

    Gradients are not clipped, and a step for each batch is all: epochs and minibatches do not count.
    """

    power: float = 0.8
    least: float = 0.05
    normalised: bool = True

    loop_capabilities = frozenset({"optimiser", "batch", "sampling_weights"})

    def setup(self) -> None:
        if self.power < 0 or not 0 < self.least <= 1:
            raise ValueError(
                f"updates.{type(self).__name__}: need power >= 0 and 0 < least <= 1, found {self.power} and "
                f"{self.least}"
            )

    def eta(self, count: int) -> float:
        """Returns the weight of the gradient in step number `count` >= 0."""
        return max(self.least, (2 / (count + 2)) ** self.power)


class TransportedMomentum(_Momentum):
    """Implicit gradient transport: each batch is sampled, and its gradient g taken, at

        theta + (1 - eta) / eta (theta - theta_before)

    and averaged, d <- (1 - eta) d + eta g; then theta <- theta - lr d / |d|, or - lr d. eta = max(least, (2 / (t +
    2))^power) in step t, from 0. Where the gradient is linear in theta, the expectation of d is the gradient at theta.

    extrapolate: False samples at theta itself, which is momentum.
    power, least: of eta; power 0 has no memory.
    normalised: whether d is divided by its norm.
    """

    extrapolate: bool = True

    def begin(self, parameters: Sequence[nn.Parameter], settings: OptimiserSettings) -> Stepper:
        return TransportStepper(self, parameters, settings.lr)


class HessianAidedMomentum(_Momentum):
    """The average of gradients, carried from one policy to the next by an estimate of the Hessian:

        d <- (1 - eta) (d + H (theta - theta_before)) + eta g,     theta <- theta - lr d / |d|, or - lr d

    where H is estimated (`BatchLoss.hessian_product`) from a batch that is sampled at a random point between
    theta_before and theta: every second batch is such a one, and takes no step. eta, power, least and normalised as in
    `TransportedMomentum`.

    Raises:
        ValueError: the objective is not a plain policy gradient, whose loss is linear in the advantages.
    """

    power: float = 1.0

    def begin(self, parameters: Sequence[nn.Parameter], settings: OptimiserSettings) -> Stepper:
        return HessianStepper(self, parameters, settings.lr)

    def check(self, objective: Objective) -> None:
        plain = isinstance(objective, Surrogate) and isinstance(objective.trust, PolicyGradient)
        if not plain or objective.ratio is not None or len(objective.regularise):  # type: ignore[attr-defined]
            raise ValueError(
                "updates.HessianAidedMomentum needs a loss that is linear in the advantages; set the objective to "
                "Surrogate(ratio=None, trust=PolicyGradient()) without regularisers"
            )


class MomentumStepper(Stepper):
    """State: the number of steps, the direction d and the parameters before the last step, as vectors."""

    reads_batch = True

    def __init__(self, rule: _Momentum, parameters: Sequence[nn.Parameter], lr: float) -> None:
        super().__init__(parameters)
        self.rule, self.lr, self.count = rule, lr, 0
        self.direction = torch.zeros_like(joined([p.detach() for p in self.parameters]))
        self.before = torch.zeros_like(self.direction)
        self._rest: list[Tensor] | None = None

    @property
    def stepped(self) -> list[nn.Parameter]:
        return []

    def set_lr(self, lr: float) -> None:
        self.lr = lr

    def step(self, norm: Tensor | None = None) -> None:
        pass

    def end_batch(self) -> None:
        if self._rest is not None:
            move(self.parameters, self._rest, torch.zeros_like(self.direction))
            self._rest = None

    def _away(self, step: Tensor) -> None:
        """Moves the parameters by `step` until the batch ends."""
        self._rest = [p.detach().clone() for p in self.parameters]
        move(self.parameters, self._rest, step)

    def moved(self) -> Tensor:
        """Returns the last step of the parameters, from where they rest."""
        assert self._rest is None
        return joined([p.detach() for p in self.parameters]) - self.before

    def take(self, gradient: Tensor, carried: Tensor) -> dict[str, float]:
        """Averages a gradient with what is carried of earlier ones, and takes the step."""
        self.end_batch()
        eta = self.rule.eta(self.count)
        self.direction = (1 - eta) * carried + eta * gradient
        size = float(self.direction.norm())
        scale = self.lr if not self.rule.normalised else self.lr / size if size > 0 else 0.0
        start = [p.detach().clone() for p in self.parameters]
        self.before = joined(start)
        move(self.parameters, start, -scale * self.direction)
        self.count += 1
        return {"update/eta": eta, "update/direction_norm": size, "update/step_norm": scale * size}

    def state(self) -> dict[str, Tensor]:
        return {"count": torch.tensor(self.count), "direction": self.direction, "before": self.before}

    def load(self, tensors: Mapping[str, Tensor], place: Place) -> None:
        self.count = int(tensors["count"])
        self.direction = tensors["direction"].to(self.direction).clone()
        self.before = tensors["before"].to(self.before).clone()


class TransportStepper(MomentumStepper):
    rule: TransportedMomentum

    def begin_batch(self, generator: torch.Generator) -> None:
        eta = self.rule.eta(self.count)
        if self.count and self.rule.extrapolate:
            self._away((1 - eta) / eta * self.moved())

    def step_on_batch(self, loss: BatchLoss) -> dict[str, float]:
        gradient = joined(loss.gradient(self.parameters))
        record = add_metrics(loss.metrics) | {"grad_norm": float(gradient.norm())}
        if not math.isfinite(record["grad_norm"]):
            return record
        return record | self.take(gradient, self.direction)


class HessianStepper(MomentumStepper):
    """State besides: the change of the gradient since the last step, once it is estimated."""

    rule: HessianAidedMomentum

    def __init__(self, rule: HessianAidedMomentum, parameters: Sequence[nn.Parameter], lr: float) -> None:
        super().__init__(rule, parameters, lr)
        self.change: Tensor | None = None

    @property
    def phase(self) -> Literal["hessian", "gradient"]:
        """The quantities that the next batch estimates."""
        return "hessian" if self.count and self.change is None else "gradient"

    def begin_batch(self, generator: torch.Generator) -> None:
        if self.phase == "hessian":
            share = float(torch.rand((), generator=generator))
            self._since = self.moved()
            self._away(-share * self._since)

    def step_on_batch(self, loss: BatchLoss) -> dict[str, float]:
        if self.phase == "hessian":
            change = loss.hessian_product(self.parameters, self._since)
            self.end_batch()
            size = float(change.norm())
            if math.isfinite(size):
                self.change = change
            return {"grad_norm": size, "update/hessian_norm": size}
        gradient = joined(loss.gradient(self.parameters))
        record = add_metrics(loss.metrics) | {"grad_norm": float(gradient.norm())}
        if not math.isfinite(record["grad_norm"]):
            return record
        carried = self.direction if self.change is None else self.direction + self.change
        self.change = None
        return record | self.take(gradient, carried)

    def state(self) -> dict[str, Tensor]:
        return super().state() | ({} if self.change is None else {"change": self.change})

    def load(self, tensors: Mapping[str, Tensor], place: Place) -> None:
        super().load(tensors, place)
        self.change = tensors["change"].to(self.direction).clone() if "change" in tensors else None
