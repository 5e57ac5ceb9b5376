"""The distance between best policies against brute force, its bounds, and the sentence that keeps it small."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from sentences import batch_of, same, slope

import polopt as po
from polopt.lab import TabularPolicy, TokenTree, expectation, flat_gradient
from polopt.lab.problems import digits, lengths
from polopt.methods.policy_cliff import SurprisalPenalty
from polopt.metrics import policy_stability, q_values
from polopt.problems.mdp import TabularMDP, random_mdp, two_goals
from polopt.rewards import KLPenalty


def normal(g: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=g, dtype=torch.double)


def test_the_bounds_hold_for_one_step_and_two_arms_reach_them() -> None:
    g = torch.Generator().manual_seed(1)
    for _ in range(2000):
        arms = int(torch.randint(1, 40, (), generator=g))
        alpha, size = (10 ** (2 - 4 * torch.rand(2, generator=g, dtype=torch.double))).tolist()
        reward, change = normal(g, arms), size * normal(g, arms)
        found = policy_stability(reward, change, alpha)
        apart = ((reward / alpha).softmax(0) - ((reward + change) / alpha).softmax(0)).abs().sum().item()
        assert found.soft == pytest.approx(apart / 2, abs=1e-12)
        assert apart <= change.abs().max().item() / alpha + 1e-12
        assert found.soft <= found.bound + 1e-12
        assert not found.certain or found.greedy == found.worst == 0
    opposite = torch.tensor([0.3, -0.3], dtype=torch.double)
    tight = policy_stability(-opposite / 2, opposite, 0.7)
    assert tight.soft == pytest.approx(tight.bound, abs=1e-12)
    assert tight.bound == pytest.approx(math.tanh(0.3 / 1.4))


def test_the_bounds_hold_for_many_steps() -> None:
    g, sharpest = torch.Generator().manual_seed(2), 0.0
    for seed in range(25):
        mdp = random_mdp(seed, states=6, actions=3, discount=0.8)
        reward = normal(g, 6, 3)
        change = 10 ** (-2 * torch.rand((), generator=g)).double() * normal(g, 6, 3).sign()
        found = policy_stability(reward, change, 0.5, transitions=mdp.transitions, discount=0.8)
        assert found.soft <= found.bound
        assert not found.certain or found.greedy == 0
        sharpest = max(sharpest, found.soft / found.bound)
    assert sharpest > 0.1


def every_policy(states: int, actions: int) -> torch.Tensor:
    choices = torch.tensor(list(itertools.product(range(actions), repeat=states)))
    return torch.nn.functional.one_hot(choices, actions).double()


def test_q_values_are_those_of_the_best_of_all_policies() -> None:
    mdp = random_mdp(3, states=4, actions=3, discount=0.7, reach=2)
    reward = normal(torch.Generator().manual_seed(3), 4, 3)
    policies = every_policy(4, 3)
    one = torch.eye(4, dtype=torch.double)
    moves = torch.einsum("nsa,sat->nst", policies, mdp.transitions)
    values = torch.linalg.solve(one - 0.7 * moves, (policies * reward).sum(-1)[..., None])[..., 0]
    best = values.amax(0)
    exact = reward + 0.7 * torch.einsum("sat,t->sa", mdp.transitions, best)
    torch.testing.assert_close(q_values(reward, mdp.transitions, 0.7), exact, rtol=1e-11, atol=1e-11)


def test_the_soft_policy_is_where_return_plus_entropy_is_flat() -> None:
    mdp, alpha = random_mdp(4, states=5, actions=3, discount=0.7), 0.3
    reward = normal(torch.Generator().manual_seed(4), 5, 3)
    logits = (q_values(reward, mdp.transitions, 0.7, alpha) / alpha).requires_grad_()

    def objective(logits: torch.Tensor) -> torch.Tensor:
        log = logits.log_softmax(-1)
        return mdp.value(log.exp(), reward - alpha * log)

    (gradient,) = torch.autograd.grad(objective(logits), logits)
    (elsewhere,) = torch.autograd.grad(objective(logits + 0.1 * reward), logits)
    assert gradient.abs().max() < 1e-10 < 1e-4 < elsewhere.abs().max()


def test_an_occupancy_is_what_is_visited() -> None:
    mdp = random_mdp(5, states=5, actions=2, discount=0.6)
    policy = normal(torch.Generator().manual_seed(5), 5, 2).softmax(-1)
    at, total = mdp.start, torch.zeros(5, 2, dtype=torch.double)
    for t in range(80):
        total += 0.4 * 0.6**t * at[:, None] * policy
        at = torch.einsum("s,sa,sat->t", at, policy, mdp.transitions)
    torch.testing.assert_close(mdp.occupancy(policy), total, rtol=1e-10, atol=1e-14)
    several = TabularMDP(mdp.transitions.expand(3, 5, 2, 5), mdp.start.expand(3, 5), 0.6)
    torch.testing.assert_close(several.occupancy(policy.expand(3, 5, 2))[1], total, rtol=1e-10, atol=1e-14)
    with pytest.raises(ValueError, match="must sum to 1"):
        TabularMDP(mdp.transitions * 2, mdp.start, 0.6)


def test_ties_are_counted_with_the_tolerance_and_follow_the_sum_of_rewards() -> None:
    nothing = torch.zeros(3)
    assert policy_stability(torch.tensor([1.0, 1.0, 0.0]), nothing, 1.0)[:4] == (0.0, 1.0, 0.0, 0.0)
    assert policy_stability(torch.tensor([1.0, 1 - 1e-4, 0.0]), nothing, 1.0).tied == 0
    assert policy_stability(torch.tensor([1.0, 1 - 1e-4, 0.0]), nothing, 1.0, tolerance=1e-3).tied == 1
    # Neither reward has a tie; their even sum has.
    one, two = torch.tensor([2.0, 1.0]).double(), torch.tensor([0.0, 1.0]).double()
    change = 1e-3 * torch.tensor([-1.0, 1.0]).double()
    assert [policy_stability(r, change, 1.0).greedy for r in (one, two, one + two)] == [0.0, 0.0, 0.5]
    mdp, reward = two_goals()
    found = policy_stability(reward, 0 * reward, 0.1, transitions=mdp.transitions, discount=mdp.discount)
    assert found.tied == 4  # the middle, both goals and the rest
    assert not found.certain


def test_what_makes_no_sense_is_refused() -> None:
    reward = torch.zeros(3)
    with pytest.raises(ValueError, match=r"one shape, \[A\] or \[S, A\], found \[3\] and \[2\]"):
        policy_stability(reward, torch.zeros(2), 1.0)
    with pytest.raises(ValueError, match="alpha > 0"):
        policy_stability(reward, reward, 0.0)
    with pytest.raises(ValueError, match="discount"):
        q_values(torch.zeros(2, 2), torch.ones(2, 2, 2) / 2, 1.0)


@pytest.mark.parametrize("problem", [digits, lengths])
def test_the_gradient_is_that_of_value_plus_entropy(problem) -> None:
    tree, policy = problem()
    algorithm = po.method("policy-cliff", group=2, alpha=0.3)
    exact = flat_gradient(tree.value(policy) + 0.3 * tree.entropy(policy), policy)
    torch.testing.assert_close(expectation(algorithm, tree, policy).mean, exact, rtol=1e-10, atol=1e-13)


def test_without_alpha_it_is_rloo() -> None:
    tree, policy = digits()
    batch = batch_of(tree, policy)
    same(slope(po.method("policy-cliff", alpha=0.0), batch, policy), slope(po.method("rloo", kl=0), batch, policy))


def test_surprise_is_the_distance_to_a_uniform_reference_up_to_a_constant() -> None:
    tree = TokenTree.full(3, 2, lambda prompt, answer: 0.0)
    policy = TabularPolicy(tree, spread=1.0, seed=1)
    batch = batch_of(tree, policy)
    batch = batch.replace(ref_logp=torch.full_like(batch.rollout_logp, -math.log(3)))
    constant = 0.2 * math.log(3) * batch.mask.double()
    same(SurprisalPenalty(coefficient=0.2)(batch), KLPenalty(coefficient=0.2)(batch) + constant)
