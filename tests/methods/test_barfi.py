"""Solvers against dense ones, the gradient through an inner optimum, and the reward that it teaches."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from sentences import same

import polopt as po
from polopt.claims.problems.bilevel import Bilevel, align, good_hint, wrong_goal
from polopt.claims.problems.sampled import SampledBilevel
from polopt.credit import RewardToGo
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.lab.walks import StatePolicy, WalkSource
from polopt.methods.barfi import AlignedReward, LearnedDiscount
from polopt.problems.mdp import random_mdp
from polopt.solvers import ConjugateGradient, Neumann, implicit_gradient
from polopt.training.provided import LANGUAGE


def system(seed: int, symmetric: bool) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    a = torch.randn(8, 8, generator=g, dtype=torch.double) / 8**0.5
    a = a @ a.T + 0.1 * torch.eye(8).double() if symmetric else a + 1.5 * torch.eye(8).double()
    return a, torch.randn(8, generator=g, dtype=torch.double)


@pytest.mark.parametrize("damping", [0.0, 0.3])
@pytest.mark.parametrize(
    ("solver", "symmetric"),
    [
        (ConjugateGradient(tolerance=1e-14), True),
        (ConjugateGradient(tolerance=1e-14, symmetric=False, iterations=400), False),
        (Neumann(rate=0.2, terms=2000), True),
        (Neumann(rate=0.2, terms=2000), False),
    ],
)
def test_solvers_invert(solver, symmetric: bool, damping: float) -> None:
    for seed in range(3):
        a, b = system(seed, symmetric)
        x = solver.but(damping=damping)(lambda v, a=a: a @ v, lambda v, a=a: a.T @ v, b)
        exact = torch.linalg.solve(a + damping * torch.eye(8).double(), b)
        torch.testing.assert_close(x, exact, rtol=1e-6, atol=1e-8)


def test_conjugate_gradients_need_no_more_steps_than_unknowns_and_stop_at_an_ascent() -> None:
    a, b = system(5, True)
    x = ConjugateGradient(iterations=8)(lambda v: a @ v, lambda v: a @ v, b)
    torch.testing.assert_close(x, torch.linalg.solve(a, b), rtol=1e-6, atol=1e-8)
    assert (ConjugateGradient()(lambda v: -v, lambda v: -v, b) == 0).all()
    for wrong in ({"iterations": 0}, {"tolerance": -1.0}, {"damping": -1.0}):
        with pytest.raises(ValueError, match="ConjugateGradient: need"):
            ConjugateGradient(**wrong)
    with pytest.raises(ValueError, match="Neumann: need"):
        Neumann(rate=0.0)


def test_one_term_is_one_inner_step_differentiated() -> None:
    """Neumann with one term: d J(theta + rate update(theta, phi)) / d phi, the meta-gradient of one step."""
    g = torch.Generator().manual_seed(0)
    c, matrix = torch.randn(3, generator=g).double(), torch.randn(3, 5, generator=g).double()
    theta, phi = torch.randn(3, generator=g).double(), torch.randn(5, generator=g).double()

    def update(theta: torch.Tensor, phi: torch.Tensor) -> torch.Tensor:
        return (matrix @ phi).tanh() - theta**3

    variable = phi.clone().requires_grad_()
    (exact,) = torch.autograd.grad(c @ (theta + 0.2 * update(theta, variable)), variable)
    same(implicit_gradient(update, c, theta, phi, Neumann(rate=0.2, terms=1)), exact)


def test_the_gradient_of_a_known_optimum() -> None:
    """theta* = A^-1 B phi, whatever A: d (c theta*) / d phi = B' A^-T c."""
    for symmetric in (True, False):
        a, c = system(1, symmetric)
        b = torch.randn(8, 3, generator=torch.Generator().manual_seed(2), dtype=torch.double)
        phi = torch.ones(3, dtype=torch.double)
        end = torch.linalg.solve(a, b @ phi)
        solver = ConjugateGradient(symmetric=symmetric, iterations=400, tolerance=1e-14)
        found = implicit_gradient(lambda t, p, a=a, b=b: b @ p - a @ t, c, end, phi, solver)
        torch.testing.assert_close(found, b.T @ torch.linalg.solve(a.T, c), rtol=1e-8, atol=1e-10)
    with pytest.raises(ValueError, match=r"need one shape \[N\]"):
        implicit_gradient(lambda t, p: t, c[:2], end, phi, solver)


def random_problem(entropy: float = 0.5) -> Bilevel:
    g = torch.Generator().manual_seed(3)
    primary, aux = (torch.randn(4, 3, generator=g, dtype=torch.double) for _ in range(2))
    return Bilevel(random_mdp(2, 4, 3, discount=0.6, reach=2), primary, aux, entropy)


def test_with_the_worlds_reward_alone_the_update_is_the_policy_gradient() -> None:
    problem = random_problem(entropy=0.0)
    theta = torch.randn(12, generator=torch.Generator().manual_seed(4), dtype=torch.double)
    plain = problem.naive((0.0, 1.0, 0.0))
    plain[-1] = 50.0  # no further discount
    same(problem.update(theta, plain), problem.gradient(theta))
    summed = dataclasses.replace(problem, primary=problem.primary + problem.aux)
    naive = problem.naive((0.0, 1.0, 1.0))
    naive[-1] = 50.0
    same(problem.update(theta, naive), summed.gradient(theta))


def rows_of(problem: Bilevel, states: torch.Tensor, actions: torch.Tensor) -> Experience:
    """Episodes as a batch that the sentence reads."""
    S, A = problem.primary.shape
    at = states * A + actions
    return Experience(
        mask=torch.ones(states.shape, dtype=torch.bool),
        reward=problem.primary.flatten()[at],
        extras={
            "aux": problem.aux.flatten()[at],
            "features": torch.nn.functional.one_hot(at, S * A).double(),
        },
    )


def test_the_sentence_samples_the_update() -> None:
    """Episodes that stop at random, learned from by the sentence, against the exact update."""
    problem = random_problem(entropy=0.0)
    S, A = problem.primary.shape
    g = torch.Generator().manual_seed(5)
    policy = StatePolicy(torch.randn(S, A, generator=g, dtype=torch.double))
    phi = problem.naive(discount=0.7)
    phi = phi + 0.5 * torch.randn(phi.shape, generator=g, dtype=torch.double)
    sentence = po.method("barfi", features=S * A)
    sentence.reward.phi.copy_(phi[:-1].view(3, -1))
    sentence.credit.logit.copy_(phi[-1])
    source = WalkSource(problem.mdp, policy, problem.primary, rows=40_000, aux=problem.aux, horizon=25)
    batch = sentence.compute_advantages(sentence.sampling(source))
    loss = sentence.objective(batch, policy.evaluate(batch)).loss
    (ours,) = torch.autograd.grad(-loss, policy.logits)
    exact = problem.update(policy.logits.detach().flatten(), phi).view(S, A)
    # 40,000 episodes: a few hundredths of the largest slope.
    assert (ours - exact).abs().max() < 0.05 * exact.abs().max()


def test_estimates_are_of_the_update_and_of_its_derivatives() -> None:
    """Entropy and learned discount included; in one direction, from 20,000 episodes."""
    problem = random_problem()
    g = torch.Generator().manual_seed(7)
    theta, v = torch.randn(2, 12, generator=g, dtype=torch.double)
    phi = problem.naive(discount=0.7) + 0.3 * torch.randn(37, generator=g, dtype=torch.double)
    theta, phi = theta.requires_grad_(), phi.requires_grad_()
    world = SampledBilevel(problem, po.method("barfi", features=12), rows=10, outer=20_000)
    kinds = []
    for update in (problem.update, world.update):
        found = update(theta, phi)
        kinds.append((found.detach(), *torch.autograd.grad(found @ v, (theta, phi))))
    for exact, ours in zip(*kinds, strict=True):
        assert (ours - exact).abs().max() < 0.08 * exact.abs().max()
    exact = problem.gradient(theta)
    assert (world.gradient(theta) - exact).abs().max() < 0.08 * exact.abs().max()
    assert world.episodes == 40_000


def test_inner_steps_are_the_sentences() -> None:
    """On average an inner batch moves theta by the exact update, entropy included."""
    problem = random_problem()
    phi = problem.naive(discount=0.7)
    world = SampledBilevel(problem, po.method("barfi", features=12, entropy=0.5), rows=20_000, outer=0)
    start = torch.randn(12, generator=torch.Generator().manual_seed(8), dtype=torch.double)
    exact = problem.update(start, phi)
    moved = world.settle(start, phi, 1, 1.0) - start
    assert (moved - exact).abs().max() < 0.08 * exact.abs().max()
    assert world.episodes == 20_000
    with pytest.raises(ValueError, match=r"needs methods\.barfi\.AlignedReward and methods\.barfi\.LearnedDiscount"):
        SampledBilevel(problem, po.method("reinforce"), rows=1, outer=1).settle(start, phi, 1, 1.0)


def test_aligned_is_what_its_table_says() -> None:
    problem = random_problem()
    g = torch.Generator().manual_seed(6)
    states, actions = torch.randint(0, 4, (3, 5), generator=g), torch.randint(0, 3, (3, 5), generator=g)
    batch, part = rows_of(problem, states, actions), AlignedReward(features=12)
    naive = (problem.primary + problem.aux)[states, actions]
    same(part(batch), naive)
    part.phi.copy_(torch.randn(3, 12, generator=g))
    by_hand = torch.zeros(3, 5).double()
    for i in range(3):
        for t in range(5):
            s, a = int(states[i, t]), int(actions[i, t])
            one, two, three = part.phi[:, s * 3 + a].tolist()
            by_hand[i, t] = one + two * problem.primary[s, a] + three * problem.aux[s, a]
    same(part(batch), by_hand)
    again = AlignedReward(features=12)
    again.load_state_dict(part.state_dict())
    same(again(batch), by_hand)
    with pytest.raises(ExperienceError, match=r"extras\['features'\] \[B, T, features\] = \[3, 5, 7\]"):
        AlignedReward(features=7)(batch)
    with pytest.raises(ValueError, match="features must be >= 1"):
        AlignedReward(features=0)


def test_a_learned_discount_is_reward_to_go_at_its_gamma() -> None:
    problem = random_problem()
    batch = rows_of(problem, torch.arange(12).view(3, 4) % 4, torch.arange(12).view(3, 4) % 3)
    part = LearnedDiscount(start=0.9)
    same(part(batch), RewardToGo(gamma=0.9)(batch))
    part.logit.fill_(0.0)
    same(part(batch), RewardToGo(gamma=0.5)(batch))
    with pytest.raises(ValueError, match=r"start must be in \(0, 1\)"):
        LearnedDiscount(start=1.0)


def test_neumann_aligns_as_well_and_a_price_lowers_the_discount() -> None:
    problem = wrong_goal()
    solver = Neumann(rate=0.2, terms=20, damping=0.1)
    theta, phi = align(problem, solver, rounds=8)
    assert problem.value(theta) > 0.9 * problem.best()
    _, cheap = align(problem, solver, rounds=8, price=5.0)
    assert cheap[-1] < phi[-1]


def test_the_problems_are_what_they_say() -> None:
    assert wrong_goal().best() == pytest.approx(0.9**3)
    assert good_hint(4).best() == pytest.approx(0.9**4)
    assert wrong_goal().aux.max() == 2


def test_language_training_refuses_it() -> None:
    assert LANGUAGE.refusals(po.method("barfi")) == [
        "methods.barfi.AlignedReward needs extras.aux, extras.features, which language training cannot "
        "provide; take another "
        "part, or train it in a loop of your own"
    ]
