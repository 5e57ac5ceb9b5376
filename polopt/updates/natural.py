"""Natural policy gradient: steps of the policy measured by how far its decisions change."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor, nn

from polopt.evaluation import add_metrics
from polopt.part import Part
from polopt.solvers import ConjugateGradient
from polopt.updates.batch_loss import BatchLoss, joined, move
from polopt.updates.parts import AdamW, OptimiserSettings, Place, Stepper, UpdateRule


class SearchResult(NamedTuple):
    """The end of a line search.

    fraction: of the full step; 0 if none was accepted. improvement, divergence: there. tried: fractions that were
    evaluated.
    """

    fraction: float
    improvement: float
    divergence: float
    tried: int


class LineSearch(Part):
    """The largest of the fractions 1, shrink, shrink^2, ... of a step at which

        improvement >= accept * fraction * expected     and     KL(pi_old || pi) <= radius

    improvement: the decrease of the loss, > 0. expected: the first-order one of the whole step.

    shrink: ratio of two fractions.
    tries: the most fractions that are evaluated; the step is left out if none is accepted.
    accept: share of the expected improvement that must be real.
    """

    shrink: float = 0.5
    tries: int = 10
    accept: float = 0.1

    def setup(self) -> None:
        if not 0 < self.shrink < 1 or self.tries < 1 or not 0 <= self.accept < 1:
            raise ValueError(
                "updates.LineSearch: need 0 < shrink < 1, tries >= 1 and 0 <= accept < 1, found "
                f"{self.shrink}, {self.tries} and {self.accept}"
            )

    def forward(self, measured: Callable[[float], tuple[float, float]], expected: float, radius: float) -> SearchResult:
        """Searches. measured: fraction -> (improvement, KL(pi_old || pi))."""
        fraction = 1.0
        for tried in range(1, self.tries + 1):
            improvement, apart = measured(fraction)
            enough = improvement > 0 and improvement >= self.accept * fraction * expected
            if enough and apart <= radius:
                return SearchResult(fraction, improvement, apart, tried)
            fraction *= self.shrink
        return SearchResult(0.0, 0.0, 0.0, self.tries)


class NaturalGradient(UpdateRule):
    """One step of the policy for each batch, on the whole of it: with g the gradient of the loss and F the mean Fisher
    information of the batch's decisions,

        x = (F + damping)^-1 g,     step = -sqrt(2 radius / x(F + damping)x) x,     or -lr x without a radius

    radius: the divergence KL(pi_old || pi), in nats, that the step has to second order; None takes the recipe's lr.
    solver: of the linear system, from products F v alone, with its damping.
    search: shortens the step, with a radius; None takes it as it is.
    others: the rule for the parameters on which no decision depends, as a critic's. They take a step on each of the
        stage's minibatches, in every epoch; the policy takes none there.

    after_minibatches: whether the step follows the stage's minibatches, of which networks beside the policy have then
        learned; no other parameter of the policy learns.

    F v is the product with the second derivative of the divergence, so any policy will do that gives the laws of its
    decisions (`BatchLoss`). The step does not depend on the gradient's norm, which is not clipped.
    """

    radius: float | None = 0.01
    solver: ConjugateGradient = ConjugateGradient(iterations=10, damping=0.1)
    search: LineSearch | None = LineSearch()
    others: UpdateRule = AdamW()
    after_minibatches: bool = False

    loop_capabilities = frozenset({"optimiser", "batch", "laws"})

    def setup(self) -> None:
        if self.radius is not None and not self.radius > 0:
            raise ValueError(f"updates.NaturalGradient: radius must be > 0, found {self.radius}")
        if self.radius is None and self.search is not None:
            raise ValueError("updates.NaturalGradient: a line search needs a radius; set search to None, or a radius")
        if not self.solver.symmetric:
            raise ValueError("updates.NaturalGradient: the Fisher matrix is symmetric; set solver.symmetric to True")
        if self.others.loop_capabilities - {"optimiser"}:
            raise ValueError(
                f"updates.NaturalGradient: others must be a rule of gradients alone, as updates.AdamW, found "
                f"{self.others!r}"
            )

    def begin(self, parameters: Sequence[nn.Parameter], settings: OptimiserSettings) -> Stepper:
        return _NaturalStepper(self, parameters, self.others.begin(parameters, settings), settings.lr)


class _NaturalStepper(Stepper):
    """The stepper of `NaturalGradient`. others: that of the parameters on which no decision depends."""

    reads_batch = True

    def __init__(self, rule: NaturalGradient, parameters: Sequence[nn.Parameter], others: Stepper, lr: float) -> None:
        super().__init__(parameters)
        self.rule, self.others, self.lr = rule, others, lr
        self._stepped: list[nn.Parameter] = []
        self.after_minibatches = rule.after_minibatches

    def set_lr(self, lr: float) -> None:
        self.lr = lr
        self.others.set_lr(lr)

    @property
    def stepped(self) -> list[nn.Parameter]:
        return self._stepped

    def step(self, norm: Tensor | None = None) -> None:
        learned = {id(p) for p in self._stepped}
        for parameter in self.parameters:
            if id(parameter) not in learned:
                parameter.grad = None
        self.others.step(norm)

    def step_on_batch(self, loss: BatchLoss) -> dict[str, float]:
        loss.remember()
        depends = loss.law_depends_on(self.parameters)
        own = [p for p, does in zip(self.parameters, depends, strict=True) if does]
        others = [p for p, does in zip(self.parameters, depends, strict=True) if not does]
        self._stepped = [] if self.after_minibatches else others
        gradient = joined(loss.gradient(own))
        record = add_metrics(loss.metrics) | {"grad_norm": float(gradient.norm())}
        if not math.isfinite(record["grad_norm"]):
            return record
        direction, expected = self._direction(loss, own, gradient)
        start = [p.detach().clone() for p in own]
        before = record["loss"]

        def measured(fraction: float) -> tuple[float, float]:
            move(own, start, fraction * direction)
            return before - loss.value(), loss.divergence()

        search, radius = self.rule.search, self.rule.radius
        if search is None or radius is None:
            found = SearchResult(1.0, *measured(1.0), 1)
        else:
            found = search(measured, expected, radius)
        move(own, start, found.fraction * direction)
        return record | {
            "update/kl": found.divergence,
            "update/improvement": found.improvement,
            "update/expected": expected,
            "update/fraction": found.fraction,
        }

    def _direction(self, loss: BatchLoss, own: Sequence[nn.Parameter], gradient: Tensor) -> tuple[Tensor, float]:
        """Returns the full step and the decrease of the loss that it has to first order."""

        def product(vector: Tensor) -> Tensor:
            return loss.fisher_product(own, vector)

        x = self.rule.solver(product, product, gradient)
        scale, radius = self.lr, self.rule.radius
        if radius is not None:
            curvature = float(x @ (product(x) + self.rule.solver.damping * x))
            scale = math.sqrt(2 * radius / curvature) if curvature > 0 else 0.0
        return -scale * x, scale * float(x @ gradient)

    def tensors(self) -> dict[str, Tensor]:
        return self.others.tensors()

    def state(self) -> dict[str, Tensor]:
        return self.others.state()

    def load(self, tensors: Mapping[str, Tensor], place: Place) -> None:
        self.others.load(tensors, place)
