"""Reward learning as a bilevel problem, against rollouts in plain Python, closed forms and finite differences."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

import polopt as po
from polopt.problems import (
    BilevelError,
    PreferenceAlignment,
    RewardDesign,
    find,
    preference_alignment,
    reward_design,
)
from polopt.solvers import BilevelDescent, ConjugateGradient, DirectGradient, ImplicitHypergradient

X = 0.5 * torch.randn(21, generator=torch.Generator().manual_seed(4), dtype=torch.double)
Y = torch.randn(21, generator=torch.Generator().manual_seed(5), dtype=torch.double)


def walked(problem: PreferenceAlignment | RewardDesign) -> list[tuple[float, list[int]]]:
    """Every trajectory as (probability under softmax(Y), pairs), by walking over the states."""
    S, A = problem.successors.shape
    probs, found = Y.view(S, A).softmax(-1), []
    for actions in itertools.product(range(A), repeat=3):
        state, odds, pairs = 0, 1.0, []
        for action in actions:
            odds *= float(probs[state, action])
            pairs.append(state * A + action)
            state = int(problem.successors[state, action])
        assert state == -1
        found.append((odds, pairs))
    return found


def test_objectives_are_sums_over_trajectories() -> None:
    problem = preference_alignment()
    paths = walked(problem)
    assert len(paths) == len(problem.visits) == 27
    assert sum(p for p, _ in paths) == pytest.approx(1)
    learned = [sum(float(X[i]) for i in pairs) for _, pairs in paths]
    true = [sum(float(problem.true[i]) for i in pairs) for _, pairs in paths]
    gain = sum(p * (r - 0.5 * math.log(p)) for (p, _), r in zip(paths, learned, strict=True))
    assert float(problem.inner(X, Y)) == pytest.approx(-gain + 0.5e-3 * float(Y @ Y))
    loss = 0.0
    for (i, (p, _)), (j, (q, _)) in itertools.product(enumerate(paths), repeat=2):
        odds, guess = (1 / (1 + math.exp(r[j] - r[i])) for r in (true, learned))
        loss -= p * q * (odds * math.log(guess) + (1 - odds) * math.log(1 - guess))
    assert float(problem.outer(X, Y)) == pytest.approx(loss)
    assert problem.true_return(Y) == pytest.approx(sum(p * r for (p, _), r in zip(paths, true, strict=True)))
    assert problem.best_return() == pytest.approx(max(true))
    design = reward_design(price=0.3)
    assert float(design.outer(X, Y)) == pytest.approx(-problem.true_return(Y) + 0.15 * float(X @ X))


def test_the_policy_that_solves_a_reward_is_the_softmax_of_returns() -> None:
    """Without the ridge, pi(tau) is in proportion to exp(R_x(tau) / entropy) among all trajectories."""
    problem = preference_alignment(entropy=0.7)
    expected = (problem.returns(X) / 0.7).log_softmax(0)
    torch.testing.assert_close(problem.log_probabilities(problem.guess(X)), expected, rtol=1e-10, atol=1e-10)
    near = problem.log_probabilities(problem.respond(X))
    assert 0 < (near.exp() - expected.exp()).abs().max() < 0.02
    gradient = torch.autograd.functional.jacobian(lambda y: problem.inner(X, y), problem.respond(X))
    assert gradient.norm() < 1e-10


def test_the_response_of_a_bandit_is_that_of_finite_differences() -> None:
    """One state, four actions: the implicit term against the closed form softmax(x / entropy), to the ridge."""
    eye = torch.eye(4, dtype=torch.double)
    utility, x = torch.tensor([0.2, -1.0, 0.5, 1.4]).double(), torch.tensor([0.3, 0.1, -0.2, 0.4]).double()
    problem = RewardDesign(torch.full((1, 4), -1), eye, utility, entropy=0.5, ridge=1e-9, price=0.0)
    solver = ConjugateGradient(tolerance=1e-14, damping=1e-12)
    y = problem.respond(x)
    found, _ = ImplicitHypergradient(solver=solver)(problem, x, y, y, iter(range(2)))
    variable = x.clone().requires_grad_()
    (exact,) = torch.autograd.grad(-((variable / 0.5).softmax(0) @ utility), variable)
    torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-6)


def test_samples_have_the_objectives_means() -> None:
    for build in (preference_alignment, reward_design):
        exact, sampled = build(), build(rows=200)
        for kind in ("inner", "outer"):
            values = torch.stack([getattr(sampled, kind)(X, Y, i) for i in range(200)])
            error = float(values.std() / 200**0.5)
            assert abs(float(values.mean() - getattr(exact, kind)(X, Y))) < 4 * error
        assert torch.equal(sampled.outer(X, Y), exact.outer(X, Y))  # without a draw it is exact
        assert sampled.outer(X, Y, 3) == sampled.outer(X, Y, 3)


def test_without_the_response_it_is_maximum_likelihood_on_the_present_trajectories() -> None:
    """The direct gradient is that of the cross-entropy with the trajectories' probabilities held fixed."""
    problem = preference_alignment()
    solver = po.solver("parl", lr=0.3).but(hypergradient=DirectGradient())
    state = solver.begin(problem)
    after = solver.iterate(problem, state)
    p = problem.log_probabilities(after["y"]).exp()
    x = state["x"].clone().requires_grad_()
    apart = problem.returns(x)[:, None] - problem.returns(x)
    odds = ((problem.visits @ problem.true)[:, None] - problem.visits @ problem.true).sigmoid()
    loss = torch.nn.functional.binary_cross_entropy_with_logits(apart, odds, reduction="none")
    (p @ loss @ p).backward()
    torch.testing.assert_close(after["x"], state["x"] - 0.3 * x.grad, rtol=1e-10, atol=1e-12)


def test_the_method_is_the_loop_with_the_implicit_term() -> None:
    solver = po.solver("parl", inner_steps=7, damping=0.2)
    assert isinstance(solver, BilevelDescent)
    assert solver.update.beta == 0
    direct = solver.but(hypergradient=DirectGradient())
    assert [path for path, *_ in po.diff(solver, direct)] == ["hypergradient"]
    again = solver.begin(find("reward-design"))
    assert again["x"].shape == (21,)


def test_bad_input_is_named() -> None:
    with pytest.raises(BilevelError, match="an even number of rows, found"):
        preference_alignment(rows=3)
    with pytest.raises(BilevelError, match=r"need features \[3, N\]"):
        PreferenceAlignment(torch.full((1, 3), -1), torch.eye(2).double(), torch.zeros(3).double())
    with pytest.raises(BilevelError, match="larger than the state's own number"):
        PreferenceAlignment(torch.zeros(1, 3, dtype=torch.long), torch.eye(3).double(), torch.zeros(3).double())
