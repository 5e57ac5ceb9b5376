"""Bilevel descent against closed forms, dense linear algebra and torch's own optimiser."""

from __future__ import annotations

import pytest
import torch

import polopt as po
from polopt.problems import (
    BilevelError,
    BilevelProblem,
    ExponentialBilevel,
    data_cleaning,
    exponential_bilevel,
    find,
)
from polopt.solvers import (
    BilevelDescent,
    ConjugateGradient,
    DirectGradient,
    ImplicitHypergradient,
    InnerSteps,
    MomentumStep,
    NormalisedMomentumStep,
    TrackedHypergradient,
)


def test_the_exact_hypergradient_is_that_of_the_closed_form() -> None:
    """f(x, y*(x)) = sum 2 cosh(B x), whatever H."""
    problem = exponential_bilevel(distance=1.3)
    x = torch.tensor([0.7, -1.9], dtype=torch.double)
    torch.testing.assert_close(problem.respond(x), problem.mixing @ x, rtol=1e-9, atol=1e-9)
    exact = problem.mixing.T @ (2 * (problem.mixing @ x).sinh())
    torch.testing.assert_close(problem.hypergradient(x), exact, rtol=1e-8, atol=1e-8)
    assert problem.measure(torch.zeros(2).double()) == pytest.approx({"hypergradient_norm": 0.0, "outer": 4.0})


def test_the_hypergradient_of_data_cleaning_is_that_of_finite_differences() -> None:
    problem = data_cleaning(examples=12, features=2, seed=3)
    x = torch.randn(12, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    found = problem.hypergradient(x)
    for i in range(12):
        step = torch.zeros(12, dtype=torch.double)
        step[i] = 1e-5
        ends = [problem.outer(v, problem.respond(v)) for v in (x + step, x - step)]
        assert found[i].item() == pytest.approx(float(ends[0] - ends[1]) / 2e-5, abs=1e-8)


def test_solved_anew_the_hypergradient_is_exact() -> None:
    part = ImplicitHypergradient(solver=ConjugateGradient(tolerance=1e-14))
    for problem in (data_cleaning(examples=20, features=3), exponential_bilevel(distance=0.5, noise=0.0)):
        x = problem.start()[0] + 0.3
        y = problem.respond(x)
        found, z = part(problem, x, y, torch.zeros_like(y), iter(range(2)))
        torch.testing.assert_close(found, problem.hypergradient(x), rtol=1e-7, atol=1e-10)
        assert torch.equal(z, torch.zeros_like(y))


def test_one_step_of_z_and_the_gradient_that_it_gives() -> None:
    problem = exponential_bilevel(distance=1.0, noise=0.0)
    x, y, z = (torch.tensor(v, dtype=torch.double) for v in ([0.4, -0.2], [0.9, 0.1], [1.5, -0.5]))
    gradient, found = TrackedHypergradient(lr=0.2)(problem, x, y, z, iter(range(9)))
    through = y.exp() - (-y).exp()
    expected = z - 0.2 * (problem.curvature @ z - through)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient, problem.mixing.T @ problem.curvature @ expected, rtol=1e-12, atol=1e-12)
    direct, same = DirectGradient()(problem, x, y, z, iter(range(9)))
    assert direct.tolist() == [0.0, 0.0]
    assert same is z


def test_inner_steps_are_those_of_torch_and_come_once_in_a_period() -> None:
    problem = exponential_bilevel(distance=1.0, noise=0.0)
    x, start = problem.start()
    y = start.clone().requires_grad_()
    optimiser = torch.optim.SGD([y], lr=0.1)
    for _ in range(7):
        optimiser.zero_grad()
        problem.inner(x, y).backward()
        optimiser.step()
    part = InnerSteps(steps=3, lr=0.1, period=2, refinement=4)
    torch.testing.assert_close(part(problem, x, start, 0, iter(range(99))), y.detach(), rtol=1e-12, atol=1e-12)
    assert torch.equal(part(problem, x, start, 1, iter(range(99))), start)
    assert not torch.equal(part(problem, x, start, 2, iter(range(99))), start)


def test_steps_are_those_of_torch_and_normalised_ones_have_one_length() -> None:
    g = torch.Generator().manual_seed(1)
    x = torch.randn(4, generator=g, dtype=torch.double)
    variable = x.clone().requires_grad_()
    optimiser = torch.optim.SGD([variable], lr=0.1, momentum=0.7, dampening=0.7)
    optimiser.state[variable]["momentum_buffer"] = torch.zeros(4, dtype=torch.double)
    plain, unit = MomentumStep(lr=0.1, beta=0.7), NormalisedMomentumStep(lr=0.1, beta=0.7)
    momentum = other = torch.zeros(4, dtype=torch.double)
    far = x
    for _ in range(4):
        variable.grad = 100 * torch.randn(4, generator=g, dtype=torch.double)
        optimiser.step()
        x, momentum = plain(x, momentum, variable.grad)
        torch.testing.assert_close(x, variable.detach(), rtol=1e-12, atol=1e-12)
        before = far
        far, other = unit(far, other, variable.grad)
        assert torch.equal(other, momentum)
        torch.testing.assert_close(far - before, -0.1 * momentum / momentum.norm(), rtol=1e-9, atol=1e-12)


class Outer(BilevelProblem):
    """f depends on x alone."""

    def start(self) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tensor([1.0, 2.0], dtype=torch.double), torch.zeros(2, dtype=torch.double)

    def outer(self, x: torch.Tensor, y: torch.Tensor, draw: int | None = None) -> torch.Tensor:
        return (x**4).sum()

    def inner(self, x: torch.Tensor, y: torch.Tensor, draw: int | None = None) -> torch.Tensor:
        return ((y - x) ** 2).sum()


def test_without_y_in_the_outer_objective_it_is_normalised_momentum() -> None:
    solver, problem = po.solver("bo-rep", lr=0.1, beta=0.5), Outer()
    state = solver.begin(problem)
    x, m = problem.start()[0], torch.zeros(2, dtype=torch.double)
    for _ in range(5):
        state = solver.iterate(problem, state)
        m = 0.5 * m + 0.5 * 4 * x**3
        x = x - 0.1 * m / m.norm()
    torch.testing.assert_close(solver.solution(problem, state), x, rtol=1e-9, atol=1e-12)


def test_samples_are_repeated_by_their_number_and_differ_between_seeds() -> None:
    problem = data_cleaning(batch=10)
    x, y = problem.start()[0], torch.ones(5, dtype=torch.double)
    assert problem.inner(x, y, 3) == problem.inner(x, y, 3) != problem.inner(x, y, 4)
    mean = sum(problem.outer(x, y, i) for i in range(2000)) / 2000
    assert float(mean) == pytest.approx(float(problem.outer(x, y)), rel=0.02)
    ends = []
    for seed in (0, 0, 1):
        solver = po.solver("bo-rep", seed=seed)
        ends.append(solver.iterate(problem, solver.begin(problem))["y"])
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2])


def test_separation_is_the_area_under_the_curve() -> None:
    problem = data_cleaning(examples=10, seed=2)
    x = torch.arange(10, dtype=torch.double).remainder(4)
    pairs = [(float(a), float(b)) for a in x[~problem.corrupt] for b in x[problem.corrupt]]
    assert problem.separation(x) == pytest.approx(sum((a > b) + 0.5 * (a == b) for a, b in pairs) / len(pairs))


def test_named_problems_and_bad_input() -> None:
    assert find("data-cleaning").name == "data-cleaning"
    assert find({"name": "exponential-bilevel", "noise": 0.0}).measure(torch.zeros(2).double())["outer"] == 4
    with pytest.raises(BilevelError, match="need 0 < corrupt < 1"):
        data_cleaning(corrupt=1.0)
    eye = torch.eye(2, dtype=torch.double)
    with pytest.raises(BilevelError, match="positive definite"):
        ExponentialBilevel(eye, -eye, torch.zeros(2).double())
    with pytest.raises(BilevelError, match=r"needs curvature \[M, M\]"):
        ExponentialBilevel(eye, eye, torch.zeros(3).double())
    with pytest.raises(TypeError, match="solves problems of the class BilevelProblem"):
        BilevelDescent().begin(find("kuhn-poker"))
    for part, settings in (
        (InnerSteps, {"period": 0}),
        (MomentumStep, {"beta": 1.0}),
        (TrackedHypergradient, {"lr": 0}),
    ):
        with pytest.raises(ValueError, match=f"solvers.{part.__name__}"):
            part(**settings)


def test_an_inner_problem_without_a_minimum_is_refused() -> None:
    class Concave(Outer):
        def inner(self, x: torch.Tensor, y: torch.Tensor, draw: int | None = None) -> torch.Tensor:
            return (y - x).sum() - ((y - 1) ** 2).sum()

    with pytest.raises(BilevelError, match="has no minimum near y"):
        Concave().respond(torch.zeros(2).double())
