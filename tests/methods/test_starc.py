"""Distances between rewards against projections, loops and linear programs."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from polopt.config import ConfigError
from polopt.methods.starc import Dard, Epic, LeastL2, RewardDistance, Uncanonical, ValueLevelled, ValueShaped, starc
from polopt.metrics import (
    MetricDataError,
    MetricError,
    SampledRewardPair,
    TabularRewardPair,
    reward_regret,
    sampled_rewards,
    worst_regret,
)
from polopt.metrics.reward_distance import dard, epic, minimal_l2, policy_value, val, val_potential
from polopt.metrics.reward_regret import deterministic_returns, return_range
from polopt.problems.mdp import random_mdp
from polopt.training import measuring

GAMMA = 0.8


def pair(seed: int, terminal: bool = False, states: int = 4, actions: int = 3) -> TabularRewardPair:
    g = torch.Generator().manual_seed(seed)
    reward, other = torch.randn(2, states, actions, states, generator=g, dtype=torch.double)
    policy = torch.rand(states, actions, generator=g, dtype=torch.double)
    return TabularRewardPair(
        random_mdp(seed, states, actions).transitions,
        reward,
        other,
        start=torch.rand(states, generator=g, dtype=torch.double).softmax(0),
        terminal=torch.arange(states) == states - 1 if terminal else None,
        policy=policy / policy.sum(1, keepdim=True),
    )


def equivalents(problem: TabularRewardPair) -> torch.Tensor:
    """A basis [n, S, A, S] of shaping, by states that are not terminal, and of redistribution."""
    S, A, _ = problem.transitions.shape
    found = []
    for s in range(S):
        if not problem.terminal[s]:
            phi = torch.eye(S, dtype=torch.double)[s]
            found.append((GAMMA * phi - phi[:, None, None]).expand(S, A, S).clone())
    for s, a in itertools.product(range(S), range(A)):
        p = problem.transitions[s, a]
        for t in range(S):  # a unit at t, without what is expected of it
            one = torch.zeros(S, A, S, dtype=torch.double)
            one[s, a] = torch.eye(S, dtype=torch.double)[t] - p[t]
            found.append(one)
    basis = torch.stack(found)
    basis[:, problem.terminal] = 0
    return basis


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("canonical", [ValueLevelled(), LeastL2()], ids=["VAL", "least L2"])
def test_canonical_forms_are_equivalent_rewards_and_blind_to_all_that_ranks_alike(canonical, terminal) -> None:
    """c(R) - R lies in the span of shaping and redistribution, and adding any of that span changes nothing."""
    problem = pair(3, terminal)
    basis = equivalents(problem).flatten(1)
    found = canonical(problem, problem.reward, GAMMA)
    step = (found - problem.reward).flatten()
    nearest = torch.linalg.lstsq(basis.T, step[:, None], driver="gelsd").solution
    torch.testing.assert_close(basis.T @ nearest, step[:, None], atol=1e-10, rtol=0)
    for direction in basis:
        moved = canonical(problem, problem.reward + 3 * direction.view_as(problem.reward), GAMMA)
        torch.testing.assert_close(moved, found, atol=1e-10, rtol=0)


@pytest.mark.parametrize("terminal", [False, True])
def test_least_l2_is_the_projection(terminal) -> None:
    problem = pair(4, terminal)
    basis = equivalents(problem).flatten(1)
    target = problem.reward.flatten()
    left = target - basis.T @ torch.linalg.lstsq(basis.T, target[:, None], driver="gelsd").solution[:, 0]
    found = minimal_l2(problem, problem.reward, GAMMA)
    torch.testing.assert_close(found.flatten(), left, atol=1e-10, rtol=0)


def test_forms_by_loops() -> None:
    problem = pair(5)
    p, r, pi = problem.transitions.numpy(), problem.reward.numpy(), problem.policy.numpy()
    S, A, _ = p.shape
    v = np.zeros(S)
    for _ in range(300):
        v = np.array(
            [
                sum(pi[s, a] * p[s, a, t] * (r[s, a, t] + GAMMA * v[t]) for a in range(A) for t in range(S))
                for s in range(S)
            ]
        )
    np.testing.assert_allclose(policy_value(problem, problem.reward, GAMMA).numpy(), v, atol=1e-10)
    cells = list(itertools.product(range(S), range(A), range(S)))
    found = {f: f(problem, problem.reward, GAMMA).numpy() for f in (val, val_potential, epic, dard)}
    for s, a, t in cells:
        level = sum(p[s, a, u] * (r[s, a, u] + GAMMA * v[u]) for u in range(S)) - v[s]
        assert found[val][s, a, t] == pytest.approx(level, abs=1e-10)
        assert found[val_potential][s, a, t] == pytest.approx(r[s, a, t] + GAMMA * v[t] - v[s], abs=1e-10)
        expected = sum(GAMMA * r[t, b, y] - r[s, b, y] - GAMMA * r[x, b, y] for x, b, y in cells) / len(cells)
        assert found[epic][s, a, t] == pytest.approx(r[s, a, t] + expected, abs=1e-10)
        crossed = 0.0
        for b, x, y in itertools.product(range(A), range(S), range(S)):
            chance = p[s, b, x] * p[t, b, y] / A
            crossed += chance * (GAMMA * r[t, b, y] - r[s, b, x] - GAMMA * r[x, b, y])
        assert found[dard][s, a, t] == pytest.approx(r[s, a, t] + crossed, abs=1e-10)


def test_epic_is_pearson_distance() -> None:
    problem = pair(6)
    both = [epic(problem, r, GAMMA).flatten().numpy() for r in (problem.reward, problem.other)]
    rho = np.corrcoef(*both)[0, 1]
    assert starc(gamma=GAMMA, canonical=Epic()).distance(problem) / 2 == pytest.approx(math.sqrt((1 - rho) / 2))


def by_linear_program(problem: TabularRewardPair) -> float:
    """The worst regret over pairs of occupancy measures, as a linear program."""
    p, start = problem.transitions.numpy(), problem.start.numpy()
    S, A, _ = p.shape
    n = S * A
    flow = np.zeros((S, n))
    for s, a, t in itertools.product(range(S), range(A), range(S)):
        flow[t, s * A + a] += (s == t) - GAMMA * p[s, a, t]
    r1, r2 = ((problem.transitions * r).sum(-1).flatten().numpy() for r in (problem.reward, problem.other))
    zero = np.zeros((S, n))
    both = {"A_eq": np.block([[flow, zero], [zero, flow]]), "b_eq": np.concatenate([start, start])}
    one = {"A_eq": flow, "b_eq": start}
    worst = linprog(np.concatenate([-r1, r1]), A_ub=[np.concatenate([r2, -r2])], b_ub=[0], **both)
    return -worst.fun / (-linprog(-r1, **one).fun - linprog(r1, **one).fun)


def test_worst_regret_is_that_of_a_linear_program_and_under_the_bound() -> None:
    for seed in range(12):
        problem = pair(seed, terminal=seed % 2 == 1)
        mixed = problem.replace(other=problem.reward + (seed % 4) * 0.3 * problem.other)
        expected = by_linear_program(mixed)
        assert reward_regret(mixed, GAMMA).worst == pytest.approx(expected, abs=1e-7)
        for canonical in (ValueLevelled(), LeastL2(), ValueShaped(), Epic(), Uncanonical()):
            found = starc(gamma=GAMMA, canonical=canonical)(mixed).values
            assert found["worst_regret"] == pytest.approx(expected, abs=1e-7)
            assert expected <= found["regret_bound"] + 1e-9
    assert "regret_bound" not in starc(canonical=Dard())(pair(0)).values


def test_regret_of_points_by_hand() -> None:
    assert worst_regret([0, 1], [0, 1]) == 0
    assert worst_regret([0, 1], [1, 0]) == 1
    assert worst_regret([0, 1], [2, 2]) == 1
    assert worst_regret([3, 3], [0, 1]) == 0
    # The square: at each level of R2 all of R1 is there.
    assert worst_regret([0, 0, 1, 1], [0, 1, 0, 1]) == 1
    # A triangle whose widest level is in its middle: (1, 1) against (0.5, 1) on the side from (0, 0) to (1, 2).
    assert worst_regret([0, 1, 1], [0, 1, 2]) == pytest.approx(0.5)


def test_return_range_is_that_of_all_policies() -> None:
    for seed in range(5):
        problem = pair(seed, terminal=True)
        returns = deterministic_returns(problem, GAMMA)[0]
        expected = (problem.transitions * problem.reward).sum(-1)
        assert return_range(problem, expected, GAMMA) == pytest.approx(np.ptp(returns), rel=1e-10)


def test_distances_of_special_rewards() -> None:
    problem = pair(7)
    for norm in ("l1", "l2", "linf"):
        metric = starc(gamma=GAMMA, norm=norm, metric=norm)
        assert metric.distance(problem.replace(other=5 * problem.reward)) == pytest.approx(0, abs=1e-12)
        assert metric.distance(problem.replace(other=-problem.reward)) == pytest.approx(2)
        flat = problem.replace(other=torch.ones(4, 3))
        assert metric.distance(flat) == pytest.approx(1)
        assert "trivial" in metric(flat).cautions[0]
        both = flat.replace(reward=torch.zeros(4, 3))
        assert metric(both).values["distance"] == metric(both).values["worst_regret"] == 0
    swapped = problem.replace(reward=problem.other, other=problem.reward)
    assert starc(gamma=GAMMA).distance(swapped) == pytest.approx(starc(gamma=GAMMA).distance(problem))


def test_the_fixed_policy_changes_numbers_not_zeros() -> None:
    problem = pair(8)
    found = [starc(gamma=GAMMA).distance(problem.replace(policy=policy)) for policy in (None, problem.policy)]
    assert abs(found[0] - found[1]) > 1e-4


def test_terminal_states_are_never_read() -> None:
    problem = pair(9, terminal=True)
    junk = problem.transitions.clone()
    junk[-1] = math.nan
    reward = problem.reward.clone()
    reward[-1] = math.inf
    again = TabularRewardPair(junk, reward, problem.other, problem.start, problem.terminal, problem.policy)
    assert starc()(again).values == pytest.approx(starc()(problem).values, rel=1e-12)


def successors(problem: TabularRewardPair, n: int, k: int, seed: int) -> SampledRewardPair:
    g = torch.Generator().manual_seed(seed)
    s, a = torch.randint(4, (n,), generator=g), torch.randint(3, (n,), generator=g)
    t = torch.multinomial(problem.transitions[s, a], k, replacement=True, generator=g)
    one, other = (policy_value(problem, r, GAMMA) for r in (problem.reward, problem.other))
    rewards = (lambda s, a, t: problem.reward[s, a, t], lambda s, a, t: problem.other[s, a, t])
    return sampled_rewards(rewards, (lambda s: one[s], lambda s: other[s]), s, a, t)


def test_two_successors_are_enough_for_an_unbiased_norm() -> None:
    problem = pair(10)
    truth = val(problem, problem.reward, GAMMA)[..., 0].square().mean().sqrt().item()
    found = RewardDistance(gamma=GAMMA, resamples=200)(successors(problem, 40_000, 2, 0))
    assert found.values["norm"] == pytest.approx(truth, rel=0.03)
    interval = found.intervals["distance"]
    assert interval.low < starc(gamma=GAMMA).distance(problem) < interval.high
    noisy = RewardDistance(gamma=GAMMA, norm="l1", resamples=2)(successors(problem, 200, 2, 0))
    assert "noise of the drawn successors" in noisy.cautions[0]


def test_deterministic_samples_of_every_decision_are_the_table() -> None:
    """One successor is enough; a mean over all decisions replaces the sum."""
    base = pair(11)
    S, A, _ = base.transitions.shape
    after = torch.randint(S, (S, A), generator=torch.Generator().manual_seed(0))
    problem = base.replace(transitions=torch.nn.functional.one_hot(after, S).double())
    s, a = (x.flatten() for x in torch.meshgrid(torch.arange(S), torch.arange(A), indexing="ij"))
    values = [policy_value(problem, r, GAMMA) for r in (problem.reward, problem.other)]
    data = sampled_rewards(
        (lambda s, a, t: problem.reward[s, a, t], lambda s, a, t: problem.other[s, a, t]),
        (lambda s: values[0][s], lambda s: values[1][s]),
        s,
        a,
        after[s, a][:, None],
    )
    for norm in ("l1", "l2", "linf"):
        metric = RewardDistance(gamma=GAMMA, norm=norm, metric=norm, resamples=1)
        assert metric(data).values["distance"] == pytest.approx(metric.distance(problem))
    with pytest.raises(MetricError, match="needs a table of the problem"):
        starc(canonical=Epic())(data)


def test_a_file_of_transitions(tmp_path: Path) -> None:
    rows = [
        {"state": 0, "action": 0, "next_state": 1, "probability": 1, "reward": 1, "other_reward": 0},
        {"state": 0, "action": 1, "next_state": 2, "probability": 0.5, "reward": 0, "other_reward": 1},
        {"state": 0, "action": 1, "next_state": 1, "probability": 0.5, "reward": 0, "other_reward": 1},
    ]
    file = tmp_path / "rewards.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    found = measuring.measure("starc", file, gamma=0.5)
    assert found.values["worst_regret"] == 1
    assert found.values["distance"] == pytest.approx(2)
    file.write_text("\n".join(map(json.dumps, [*rows, rows[0]])))
    with pytest.raises(MetricDataError, match=r"rows 1 and 4: the transition \(0, 0, 1\) is there twice"):
        measuring.measure("starc", file)
    file.write_text(json.dumps({**rows[0], "probability": 0.7}))
    with pytest.raises(MetricDataError, match="transitions must be >= 0 and sum to 1"):
        measuring.measure("starc", file)
    file.write_text(json.dumps({**rows[0], "state": 0.5}))
    with pytest.raises(ConfigError, match="line 1: state must be a whole number"):
        measuring.measure("starc", file)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"transitions": torch.ones(4, 3, 4)},
            "transitions must be >= 0 and sum to 1 in each row, found a row with the sum 4",
        ),
        ({"transitions": torch.ones(4, 3)}, r"transitions must be \[S, A, S\], found \[4, 3\]"),
        ({"reward": torch.ones(3, 3, 4)}, r"reward must be \[4, 3, 4\], found \[3, 3, 4\]"),
        ({"other": torch.full((4, 3), math.nan)}, "other must be finite"),
        ({"start": torch.ones(4)}, "start must be >= 0 and sum to 1"),
        ({"terminal": torch.ones(4)}, "every state is terminal"),
        ({"policy": torch.ones(3, 4)}, r"policy must be \[4, 3\]"),
    ],
)
def test_what_does_not_fit_is_refused(changes, message) -> None:
    with pytest.raises(MetricDataError, match=message):
        pair(0).replace(**changes)


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match=r"gamma must be in \[0, 1\), found 1"):
        starc(gamma=1.0)
    with pytest.raises(ValueError, match="level in"):
        starc(level=0.0)
    with pytest.raises(MetricDataError, match="81 deterministic policies are more than max_policies = 80"):
        reward_regret(pair(0), GAMMA, max_policies=80)
    with pytest.raises(MetricDataError, match="must have one N"):
        sampled_rewards((max, max), (max, max), torch.zeros(3), torch.zeros(2), torch.zeros(3, 1))
    with pytest.raises(MetricDataError, match=r"found other \[2, 1\]"):
        SampledRewardPair(
            *[torch.zeros(3, 2), torch.zeros(3), torch.zeros(3, 2)], torch.zeros(2, 1), *[torch.zeros(1)] * 2
        )
