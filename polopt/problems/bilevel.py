"""Bilevel problems: an outer objective at the solution of an inner, strongly convex minimisation."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from polopt.errors import UserError


class BilevelError(UserError, ValueError):
    """A bilevel problem's sizes or settings contradict each other, or its inner problem has no minimum."""


class BilevelProblem:
    """min over x of f(x, y*(x)), where y*(x) minimises g(x, y) over y; x is [N], y is [M], both float64.

    A subclass defines `start`, `outer` (f) and `inner` (g), differentiable in both. `draw` is the number of a sample:
    with it, they return the function of a mini-batch, the same for the same number, and without it the exact function.
    """

    name: str = "bilevel"
    unit: str = "gradient norm"

    def start(self) -> tuple[Tensor, Tensor]:
        """Returns x [N] and y [M] before the first step."""
        raise NotImplementedError

    def outer(self, x: Tensor, y: Tensor, draw: int | None = None) -> Tensor:
        """Computes f(x, y), or its estimate from the sample `draw`."""
        raise NotImplementedError

    def inner(self, x: Tensor, y: Tensor, draw: int | None = None) -> Tensor:
        """Computes g(x, y), or its estimate from the sample `draw`."""
        raise NotImplementedError

    def labels(self) -> tuple[str, ...]:
        """Returns the names of the entries of x."""
        return tuple(str(i) for i in range(len(self.start()[0])))

    def guess(self, x: Tensor) -> Tensor:
        """Returns a y [M] from which Newton's method finds y*(x)."""
        return self.start()[1]

    def respond(self, x: Tensor) -> Tensor:
        """Computes the inner solution y*(x) by Newton's method with halved steps, from `guess`.

        Raises:
            BilevelError: g has no minimum that the method finds.
        """
        x, y = x.detach(), self.guess(x.detach())
        for _ in range(100):
            gradient, hessian = self._inner_derivatives(x, y)
            if gradient.norm() < 1e-11:
                return y
            direction = torch.linalg.solve(hessian, gradient)
            step, value = 1.0, self.inner(x, y)
            while self.inner(x, y - step * direction) > value and step > 1e-12:
                step /= 2
            y = y - step * direction
        if gradient.norm() < 1e-6:
            return y
        raise BilevelError(f"{self.name}: the inner problem has no minimum near y; make it strongly convex in y")

    def _inner_derivatives(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        gradient = torch.autograd.functional.jacobian(lambda v: self.inner(x, v), y)
        return gradient, torch.autograd.functional.hessian(lambda v: self.inner(x, v), y)

    def hypergradient(self, x: Tensor) -> Tensor:
        """Computes d f(x, y*(x)) / dx = f_x - g_xy g_yy^{-1} f_y at the inner solution, with dense matrices."""
        x, y = x.detach(), self.respond(x)
        (_, cross), (_, curvature) = torch.autograd.functional.hessian(self.inner, (x, y))
        direct, through = torch.autograd.functional.jacobian(self.outer, (x, y))
        return direct - cross @ torch.linalg.solve(curvature, through)

    def measure(self, solution: Tensor) -> dict[str, float]:
        """Measures an x: the norm of the exact hypergradient, 0 at a stationary point, then f(x, y*(x))."""
        return {
            "hypergradient_norm": float(self.hypergradient(solution).norm()),
            "outer": float(self.outer(solution, self.respond(solution))),
        }

    def table(self, solution: Tensor) -> dict[str, dict[str, float]]:
        """Converts an x to plain data: the value of each entry by its label."""
        return {"x": dict(zip(self.labels(), solution.tolist(), strict=True))}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ExponentialBilevel(BilevelProblem):
    """f = sum_i (exp(y_i) + exp(-y_i)) and g = 1/2 (y - B x)' H (y - B x), so that f(x, y*(x)) is least at B x = 0.

    The curvature of f grows as its gradient does, without bound: no step size of plain descent fits everywhere.

    mixing: B [M, N]. curvature: H [M, M], symmetric and positive definite. begin: x at the start [N].
    noise: the standard deviation of what each sample adds to the gradients in y, in each entry.

    Raises:
        BilevelError: sizes that do not fit, or an H that is not positive definite.
    """

    mixing: Tensor
    curvature: Tensor
    begin: Tensor
    noise: float = 0.0
    name: str = "exponential-bilevel"

    def __post_init__(self) -> None:
        M, N = self.mixing.shape
        if self.curvature.shape != (M, M) or self.begin.shape != (N,):
            raise BilevelError(
                f"{self.name}: mixing [M, N] = {[M, N]} needs curvature [M, M] and begin [N], found "
                f"{list(self.curvature.shape)} and {list(self.begin.shape)}"
            )
        if not torch.equal(self.curvature, self.curvature.T) or torch.linalg.eigvalsh(self.curvature)[0] <= 0:
            raise BilevelError(f"{self.name}: curvature must be symmetric and positive definite")

    def start(self) -> tuple[Tensor, Tensor]:
        return self.begin.clone(), torch.zeros(len(self.mixing), dtype=torch.double)

    def outer(self, x: Tensor, y: Tensor, draw: int | None = None) -> Tensor:
        return (y.exp() + (-y).exp()).sum() + self._noise(draw, 1) @ y

    def inner(self, x: Tensor, y: Tensor, draw: int | None = None) -> Tensor:
        apart = y - self.mixing @ x
        return 0.5 * apart @ self.curvature @ apart + self._noise(draw, 0) @ y

    def _noise(self, draw: int | None, which: int) -> Tensor:
        size = len(self.mixing)
        if draw is None or not self.noise:
            return torch.zeros(size, dtype=torch.double)
        return self.noise * torch.randn(2, size, generator=_generator(draw), dtype=torch.double)[which]


def exponential_bilevel(*, distance: float = 10.0, noise: float = 0.1) -> ExponentialBilevel:
    """Builds an `ExponentialBilevel` of two variables, from the start (distance, -distance); f is 4 at its minimum."""
    return ExponentialBilevel(
        mixing=torch.tensor([[1.0, 0.2], [-0.1, 0.8]], dtype=torch.double),
        curvature=torch.tensor([[1.5, 0.3], [0.3, 1.0]], dtype=torch.double),
        begin=torch.tensor([distance, -distance], dtype=torch.double),
        noise=noise,
    )


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class DataCleaning(BilevelProblem):
    """Weights of training examples, some of which have wrong labels, for the least loss on clean validation examples:

        f = mean validation loss of w,    g = mean_i sigmoid(x_i) loss_i(w) + ridge / 2 |w|^2

    with the logistic loss of a linear model w = y, and x the logit of each training example's weight.

    inputs, targets: [K, D] and labels [K] of -1 and 1, of the training examples. corrupt: [K] whether a label is wrong.
    clean_inputs, clean_targets: those of the validation examples.
    batch: examples of a sample; 0 takes all.
    """

    inputs: Tensor
    targets: Tensor
    corrupt: Tensor
    clean_inputs: Tensor
    clean_targets: Tensor
    ridge: float = 0.01
    batch: int = 0
    name: str = "data-cleaning"

    def start(self) -> tuple[Tensor, Tensor]:
        return torch.zeros(len(self.inputs), dtype=torch.double), torch.zeros(self.inputs.shape[1], dtype=torch.double)

    def outer(self, x: Tensor, y: Tensor, draw: int | None = None) -> Tensor:
        rows = self._rows(len(self.clean_inputs), draw)
        return _logistic(self.clean_inputs[rows], self.clean_targets[rows], y).mean()

    def inner(self, x: Tensor, y: Tensor, draw: int | None = None) -> Tensor:
        rows = self._rows(len(self.inputs), draw)
        losses = x[rows].sigmoid() * _logistic(self.inputs[rows], self.targets[rows], y)
        return losses.mean() + 0.5 * self.ridge * y @ y

    def _rows(self, count: int, draw: int | None) -> Tensor:
        if draw is None or not self.batch:
            return torch.arange(count)
        return torch.randperm(count, generator=_generator(draw))[: self.batch]

    def separation(self, x: Tensor) -> float:
        """Computes the probability that a correct example has a larger weight than a corrupt one, ties as 1/2."""
        right, wrong = x[~self.corrupt][:, None], x[self.corrupt][None]
        return float(((right > wrong).double() + 0.5 * (right == wrong)).mean())

    def measure(self, solution: Tensor) -> dict[str, float]:
        """Measures an x as `BilevelProblem.measure`, and how well its weights separate corrupt examples."""
        return {**super().measure(solution), "separation": self.separation(solution)}


def data_cleaning(
    *, examples: int = 100, features: int = 5, corrupt: float = 0.3, batch: int = 0, ridge: float = 0.01, seed: int = 0
) -> DataCleaning:
    """Builds a `DataCleaning` problem of two Gaussian classes, with as many validation examples as training ones.

    corrupt: the fraction of the training labels that is flipped.

    Raises:
        BilevelError: no fraction in (0, 1), fewer than four examples, no feature, or a batch larger than the data.
    """
    if not 0 < corrupt < 1 or examples < 4 or features < 1 or not 0 <= batch <= examples or ridge <= 0:
        raise BilevelError(
            "data-cleaning: need 0 < corrupt < 1, examples >= 4, features >= 1, 0 <= batch <= examples and ridge > 0, "
            f"found {corrupt}, {examples}, {features}, {batch} and {ridge}"
        )
    g = torch.Generator().manual_seed(seed)
    target = torch.where(torch.rand(2, examples, generator=g) < 0.5, -1.0, 1.0).double()
    way = torch.ones(features, dtype=torch.double) / features**0.5
    inputs = torch.randn(2, examples, features, generator=g, dtype=torch.double) + 1.5 * target[..., None] * way
    wrong = torch.zeros(examples, dtype=torch.bool)
    wrong[torch.randperm(examples, generator=g)[: max(1, round(corrupt * examples))]] = True
    return DataCleaning(
        inputs=inputs[0],
        targets=torch.where(wrong, -target[0], target[0]),
        corrupt=wrong,
        clean_inputs=inputs[1],
        clean_targets=target[1],
        ridge=ridge,
        batch=batch,
    )


def _logistic(inputs: Tensor, targets: Tensor, w: Tensor) -> Tensor:
    return torch.nn.functional.softplus(-targets * (inputs @ w))


def _generator(draw: int) -> torch.Generator:
    return torch.Generator().manual_seed(draw)
