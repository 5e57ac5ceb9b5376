"""Finite differences with stopped gradients held still."""

from __future__ import annotations

import pytest
import test_battery
import torch

from polopt import objectives
from polopt.checks import PartRow
from polopt.checks.measure import stopped
from polopt.checks.stop_gradients import StopGradientMismatch, StopGradients


def value(x, y):
    with torch.no_grad():
        weight = (x - y).exp()
    return (weight * x).sum() + (x.detach() * x**2).sum() + (x.data * y).sum()


def test_by_hand():
    """d/dx of w x + c x^2 + c y with w = exp(x - y) and c = x held: w + 2 c x = exp(x - y) + 2 x^2."""
    x, y = torch.tensor([0.3, -0.7], dtype=torch.float64, requires_grad=True), torch.tensor([0.1, 0.2]).double()
    stops = StopGradients()
    (grad,) = torch.autograd.grad(stops.recorded(lambda: value(x, y)), x)
    torch.testing.assert_close(grad, ((x - y).exp() + 2 * x**2).detach())
    for i in range(2):
        step = torch.zeros(2, dtype=torch.float64)
        step[i] = 1e-6
        up, down = ((x.detach() + s * step).requires_grad_() for s in (1, -1))
        slope = (stops.replayed(lambda up=up: value(up, y)) - stops.replayed(lambda down=down: value(down, y))) / 2e-6
        assert slope.item() == pytest.approx(grad[i].item(), rel=1e-7)


def test_a_run_that_stops_something_else_is_refused():
    x, stops = torch.ones(2, requires_grad=True), StopGradients()
    stops.recorded(lambda: x.detach() * x)
    for other in (lambda: x * x, lambda: x.detach() * x.detach(), lambda: x[:1].detach() * x[:1]):
        with pytest.raises(StopGradientMismatch):
            stops.replayed(other)


# Rows of the battery of which a formula stops a gradient, so that the battery itself has nothing to compare.
HONEST_NONE = {name: row for rows, _ in test_battery.BATCH_KINDS for name, row in rows.items() if row.honest is None}


@pytest.mark.parametrize("name", HONEST_NONE)
def test_what_stops_a_gradient_is_right_in_the_rest(name):
    assert stopped(HONEST_NONE[name])


class Constant(objectives.SurrogateTerm):
    """Takes a number out of the graph by hand, where nothing can be seen to be stopped."""

    def forward(self, log_ratio, experience, evaluation):
        size = sum(log_ratio.flatten().tolist())
        return -experience.advantage * log_ratio.exp() * (2 + size / 10), torch.zeros_like(log_ratio)


def test_a_gradient_that_is_lost_is_not_explained():
    assert not stopped(PartRow(objectives.Surrogate(trust=Constant())))
    assert stopped(PartRow(objectives.Surrogate()))
