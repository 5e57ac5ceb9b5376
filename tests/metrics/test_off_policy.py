"""Off-policy estimates against enumeration, plain loops and simulation."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy import stats

import polopt as po
from polopt.lab.logged import EpisodicProblem, estimated, small_problem, with_values
from polopt.metrics import (
    DirectMethod,
    DoublyRobust,
    LoggedDataError,
    LoggedDecisions,
    LoggedValues,
    MetricError,
    PerDecisionImportanceSampling,
    TabularValues,
    TrajectoryImportanceSampling,
    WeightsError,
)

GAMMA = 0.9
PLAIN = (TrajectoryImportanceSampling(gamma=GAMMA), PerDecisionImportanceSampling(gamma=GAMMA))


def drawn_values(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(3, 3, 2))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("metric", PLAIN, ids=lambda m: type(m).__name__)
def test_importance_sampling_is_unbiased_over_all_episodes(metric, seed):
    problem, behaviour, target = small_problem(seed)
    assert estimated(problem, behaviour, target, metric)[0] == pytest.approx(problem.value(target, GAMMA), abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_doubly_robust_is_unbiased_with_any_values_and_the_direct_method_is_not(seed):
    problem, behaviour, target = small_problem(seed)
    truth, wrong = problem.value(target, GAMMA), drawn_values(seed)
    robust, direct = (x(gamma=GAMMA, model=LoggedValues()) for x in (DoublyRobust, DirectMethod))
    assert estimated(problem, behaviour, target, robust, wrong)[0] == pytest.approx(truth, abs=1e-12)
    assert abs(estimated(problem, behaviour, target, direct, wrong)[0] - truth) > 0.01
    right = problem.values(target, GAMMA)[0]
    assert estimated(problem, behaviour, target, direct, right)[0] == pytest.approx(truth, abs=1e-12)


def test_doubly_robust_without_values_is_per_decision_importance_sampling():
    problem, behaviour, target = small_problem(1)
    table = with_values(problem.sample(behaviour, target, 50, seed=0), np.zeros((3, 3, 2)), target)
    for normalised in (False, True):
        robust = DoublyRobust(gamma=GAMMA, model=LoggedValues(), self_normalised=normalised)
        plain = PerDecisionImportanceSampling(gamma=GAMMA, self_normalised=normalised)
        assert robust(table).intervals["estimate"] == plain(table).intervals["estimate"]


def test_a_model_fitted_to_other_episodes_keeps_it_unbiased():
    """Over all pairs of episodes, each valued by a table that was fitted to the other; with one fold it is biased."""
    transitions = np.array([[[0, 0.5, 0.5], [0, 0.3, 0.7]], [[0.6, 0, 0.4], [0.2, 0, 0.8]]])
    reward = np.random.default_rng(0).normal(size=(2, 2, 3))
    problem = EpisodicProblem(np.array([1.0, 0]), transitions, reward, 2)
    behaviour, target = np.array([[0.4, 0.6], [0.7, 0.3]]), np.array([[0.9, 0.1], [0.2, 0.8]])
    table, chance = problem.all_episodes(behaviour, target)
    truth = problem.value(target, GAMMA)
    pairs = [(i, j) for i in range(len(table)) for j in range(len(table))]
    means = []
    for folds in (2, 1):
        metric = DoublyRobust(gamma=GAMMA, folds=folds, model=TabularValues(by_step=True))
        means.append(sum(chance[i] * chance[j] * metric.terms(table[[i, j]]).estimate() for i, j in pairs))
    assert means[0] == pytest.approx(truth, abs=1e-12)
    assert abs(means[1] - truth) > 1e-3


def loops(table: LoggedDecisions, kind: str, normalised: bool, q=None, v=None) -> float:
    """The estimators as their formulas are written, decision by decision."""
    B, T = table.reward.shape
    w = np.ones((B, T + 1))  # w[i, t + 1] = w_{0:t}
    for i in range(B):
        for t in range(T):
            ratio = math.exp(table.target_logp[i, t] - table.behaviour_logp[i, t]) if t < table.lengths[i] else 1.0
            w[i, t + 1] = w[i, t] * ratio
    if kind == "trajectory":
        returns = [sum(GAMMA**t * table.reward[i, t] for t in range(table.lengths[i])) for i in range(B)]
        above = sum(w[i, T] * returns[i] for i in range(B))
        return above / (sum(w[:, T]) if normalised else B)
    total = 0.0
    for t in range(T):
        now, before = (sum(w[:, t + 1]), sum(w[:, t])) if normalised else (B, B)
        for i in range(B):
            if t < table.lengths[i]:
                q_t, v_t = (0.0, 0.0) if kind == "decision" else (q[i, t], v[i, t])
                total += GAMMA**t * (w[i, t + 1] / now * (table.reward[i, t] - q_t) + w[i, t] / before * v_t)
    return total


@pytest.mark.parametrize("normalised", [False, True])
def test_estimates_are_those_of_plain_loops(normalised):
    problem, behaviour, target = small_problem(2)
    table = with_values(problem.sample(behaviour, target, 40, seed=1), drawn_values(0), target)
    assert table.lengths.min() < table.lengths.max()
    settings = {"gamma": GAMMA, "self_normalised": normalised}
    for metric, kind in (
        (TrajectoryImportanceSampling(**settings), "trajectory"),
        (PerDecisionImportanceSampling(**settings), "decision"),
        (DoublyRobust(**settings, model=LoggedValues()), "robust"),
    ):
        expected = loops(table, kind, normalised, table.q, table.v)
        assert metric(table).values["estimate"] == pytest.approx(expected, rel=1e-12)


def test_weights_are_those_of_the_last_decision_behind_an_end():
    """Resting explicitly, in a state where both policies have one action, changes no estimate."""
    problem, behaviour, target = small_problem(2)
    table = problem.sample(behaviour, target, 40, seed=1)
    rested = dataclasses.replace(table, lengths=np.full(40, table.reward.shape[1]))
    for normalised in (False, True):
        metric = PerDecisionImportanceSampling(gamma=GAMMA, self_normalised=normalised)
        assert metric(rested).values["estimate"] == pytest.approx(metric(table).values["estimate"], rel=1e-12)


def test_tabular_values_solve_the_equations_of_what_was_logged():
    """All episodes, each as often as its probability: the table's values are then the problem's own."""
    draw = np.random.default_rng(0)
    transitions, reward = np.zeros((3, 2, 4)), draw.normal(size=(3, 2, 4))
    for s, a in np.ndindex(3, 2):
        transitions[s, a, draw.permutation(4)[:2]] = 0.5  # so that counts are whole numbers
    problem = EpisodicProblem(np.array([1.0, 0, 0]), transitions, reward, 3)
    behaviour, target = np.full((3, 2), 0.5), draw.dirichlet(np.ones(2), 3)
    table, chance = problem.all_episodes(behaviour, target)
    counts = np.round(chance * 4**3).astype(int)
    full = table[np.repeat(np.arange(len(table)), counts)]
    found = TabularValues(by_step=True)(full, full, GAMMA)
    q, v = problem.values(target, GAMMA)
    steps = np.broadcast_to(np.arange(3), full.reward.shape)
    expected = q[steps, full.state, full.action], v[steps, full.state]
    for got, want in zip((found.q, found.v), expected, strict=True):
        np.testing.assert_allclose(got[full.mask], want[full.mask], rtol=1e-10)
    assert found.unseen.max() < 1e-12


def test_a_stationary_table_is_the_fixed_point_of_sweeps():
    problem, behaviour, target = small_problem(4)
    table = problem.sample(behaviour, target, 200, seed=0)
    found = TabularValues()(table, table, GAMMA)
    q: dict[tuple[int, int], float] = {}
    rows = [(i, t) for i in range(200) for t in range(table.lengths[i])]
    for _ in range(300):
        sums: dict[tuple[int, int], list[float]] = {}
        for i, t in rows:
            ahead = 0.0
            if t + 1 < table.lengths[i]:
                s = int(table.state[i, t + 1])
                ahead = sum(target[s, a] * q.get((s, a), 0.0) for a in range(2))
            sums.setdefault((int(table.state[i, t]), int(table.action[i, t])), []).append(
                table.reward[i, t] + GAMMA * ahead
            )
        q = {key: sum(x) / len(x) for key, x in sums.items()}
    expected = [q[int(table.state[i, t]), int(table.action[i, t])] for i, t in rows]
    np.testing.assert_allclose([found.q[i, t] for i, t in rows], expected, rtol=1e-9)


@pytest.mark.parametrize("interval", ["t", "normal", "bootstrap"])
@pytest.mark.parametrize("normalised", [False, True])
def test_intervals_cover_the_truth_as_often_as_they_say(interval, normalised):
    """300 logs of 80 episodes, 90 %: the count lies where the binomial puts all but one in 10^4, a skew's 4 % lower."""
    problem, behaviour, target = small_problem(0)
    metric = PerDecisionImportanceSampling(
        gamma=GAMMA, level=0.9, interval=interval, self_normalised=normalised, resamples=300
    )
    table, chance = problem.all_episodes(behaviour, target)
    draw, truth, logs = np.random.default_rng(0), problem.value(target, GAMMA), 300
    found = [
        metric(table[draw.choice(len(table), 80, p=chance / chance.sum())]).intervals["estimate"] for _ in range(logs)
    ]
    covered = sum(x.low <= truth <= x.high for x in found)
    low, high = stats.binom(logs, 0.86).ppf(1e-4), stats.binom(logs, 0.90).ppf(1 - 1e-4)
    assert low <= covered <= high


def test_the_direct_methods_interval_knows_that_its_model_was_fitted():
    """From one start state the mean over episodes has no spread; the refitted bootstrap has, and covers."""
    problem, behaviour, target = small_problem(0)
    problem = dataclasses.replace(problem, start=np.array([1.0, 0, 0]))
    table, chance = problem.all_episodes(behaviour, target)
    draw, truth = np.random.default_rng(1), problem.value(target, GAMMA)
    metric = DirectMethod(gamma=GAMMA, resamples=40, level=0.9, model=TabularValues(by_step=True))
    logs = [table[draw.choice(len(table), 100, p=chance / chance.sum())] for _ in range(30)]
    found = [metric(log).intervals["estimate"] for log in logs]
    covered = sum(x.low <= truth <= x.high for x in found)
    assert stats.binom(30, 0.8).ppf(1e-4) <= covered
    assert all(x.high > x.low for x in found)


def test_an_experience_is_the_table_of_its_decisions():
    """Prompts and tool output between decisions, NaN there, and a row without decisions."""
    draw = torch.Generator().manual_seed(0)
    mask = torch.tensor([[False, True, True, False, True], [True, False, False, False, False], [False] * 5])
    logp, other = (-torch.rand(3, 5, generator=draw).double() for _ in range(2))
    spoilt = torch.where(mask, logp, torch.nan)
    batch = po.Experience(mask=mask, rollout_logp=spoilt, reward=torch.tensor([1.0, -2.0, 7.0]).double())
    found = PerDecisionImportanceSampling(gamma=0.5)(batch, po.Evaluation(logp=torch.where(mask, other, torch.nan)))
    ratio = torch.where(mask, (other - logp).exp(), 1.0).prod(1)
    expected = (0.25 * ratio[0] * 1.0 + ratio[1] * -2.0) / 2
    assert found.values["estimate"] == pytest.approx(float(expected), rel=1e-12)
    with pytest.raises(MetricError, match="target policy's log-probabilities"):
        PerDecisionImportanceSampling()(batch)
    with pytest.raises(MetricError, match="reads action, state"):
        DoublyRobust()(batch, po.Evaluation(logp=other))


def table(ratios: np.ndarray, reward: np.ndarray) -> LoggedDecisions:
    """Episodes of one decision with these ratios of probabilities."""
    return LoggedDecisions(
        np.ones(len(ratios), int), reward[:, None], np.full((len(ratios), 1), -1.0), np.log(ratios)[:, None] - 1.0
    )


def test_weights_that_leave_little_are_cautioned():
    steady = table(np.ones(100), np.arange(100.0))
    metric = TrajectoryImportanceSampling()
    assert metric(steady).cautions == ()
    assert metric(steady).values["effective_sample_size"] == pytest.approx(100)
    heavy = metric(table(np.array([100.0] + [0.1] * 99), np.ones(100)))
    size = (100 + 9.9) ** 2 / (100**2 + 99 * 0.01)
    assert heavy.values["effective_sample_size"] == pytest.approx(size)
    assert heavy.values["largest_weight"] == pytest.approx(100)
    assert heavy.values["largest_share"] == pytest.approx(100 / 109.9)
    assert "leave 1.21 of 100 episodes" in heavy.cautions[0]
    assert "one episode has 91%" in heavy.cautions[1]
    low = metric(table(np.full(100, 0.6) + np.linspace(0, 0.1, 100), np.ones(100)))
    assert [c[:30] for c in low.cautions] == ["the weights' mean is 0.65 and "]


def test_impossible_and_overflowing_weights_are_refused_or_scaled():
    never = table(np.array([1.0, 1.0]), np.ones(2))
    never = dataclasses.replace(never, target_logp=np.full((2, 1), -np.inf))
    with pytest.raises(WeightsError, match="no logged episode is possible"):
        TrajectoryImportanceSampling()(never)
    large = dataclasses.replace(never, target_logp=np.array([[800.0], [799.0]]), reward=np.array([[1.0], [2.0]]))
    with pytest.raises(WeightsError, match="self_normalised=true"):
        TrajectoryImportanceSampling()(large)
    found = TrajectoryImportanceSampling(self_normalised=True)(large).values["estimate"]
    assert found == pytest.approx((math.e * 1 + 2) / (math.e + 1))


def test_steps_that_the_target_never_reaches_count_as_nothing_and_are_named():
    logp = np.log([[0.5, 0.5], [0.5, 0.5]])
    target = np.array([[0.0, -np.inf], [0.0, -np.inf]])
    found = PerDecisionImportanceSampling(self_normalised=True)(
        LoggedDecisions(np.array([2, 2]), np.array([[1.0, 5.0], [3.0, 5.0]]), logp, target)
    )
    assert found.values["estimate"] == 2.0
    assert found.values["effective_sample_size"] == 0
    assert any("from decision 1 on no logged episode" in c for c in found.cautions)


def test_settings_and_data_are_refused_in_a_sentence():
    problem, behaviour, target = small_problem(0)
    log = problem.sample(behaviour, target, 1, seed=0)
    with pytest.raises(MetricError, match="2 folds need as many episodes, found 1"):
        DoublyRobust()(log)
    with pytest.raises(ValueError, match=r"gamma must be in \[0, 1\], found 2"):
        DoublyRobust(gamma=2.0)
    with pytest.raises(LoggedDataError, match="reward of decision 0 of episode 1 must be a finite number, found nan"):
        table(np.ones(2), np.array([1.0, np.nan]))
    codes = {"state": np.zeros((2, 1)), "action": np.ones((2, 1))}
    moving = dataclasses.replace(table(np.array([1.0, 0.5]), np.ones(2)), **codes)
    with pytest.raises(LoggedDataError, match="a state that holds all that the policy reads"):
        DirectMethod()(moving)
    circle = LoggedDecisions(
        np.array([3]), np.ones((1, 3)), np.log([[0.5] * 3]), np.log([[1.0, 1.0, 1e-300]]),
        state=np.array([[0, 1, 0]]), action=np.array([[0, 0, 1]]),
    )  # fmt: skip
    circle = dataclasses.replace(circle, target_logp=np.array([[0.0, 0.0, -np.inf]]))
    with pytest.raises(LoggedDataError, match="never comes to an end"):
        DirectMethod()(circle)
    assert DirectMethod(model=TabularValues(ridge=1.0), resamples=2)(circle).values["estimate"] > 0


@pytest.mark.parametrize("normalised", [False, True])
def test_an_episodes_influence_is_the_derivative_by_how_often_it_is_there(normalised):
    problem, behaviour, target = small_problem(0)
    terms = PerDecisionImportanceSampling(gamma=GAMMA, self_normalised=normalised).terms(
        problem.sample(behaviour, target, 12, seed=3)
    )

    def estimate(often: np.ndarray) -> float:
        below = (often[:, None] * np.exp(terms.log_weight)).sum(0) if normalised else often.sum()
        return float(((often[:, None] * np.exp(terms.log_weight) * terms.value).sum(0) / below).sum())

    for i in range(12):
        step = 1e-6 * np.eye(12)[i]
        slope = 12 * (estimate(np.ones(12) + step) - estimate(np.ones(12) - step)) / 2e-6
        assert terms.influence()[i] - terms.estimate() == pytest.approx(slope, rel=1e-6, abs=1e-7)


def test_the_bootstrap_of_many_episodes_is_near_students_interval():
    """More episodes than are left out one by one."""
    problem, behaviour, target = small_problem(0)
    log = problem.sample(behaviour, target, 6000, seed=0)
    one, other = (
        TrajectoryImportanceSampling(interval=kind, self_normalised=True, resamples=500)(log).intervals["estimate"]
        for kind in ("t", "bootstrap")
    )
    assert (other.high - other.low) == pytest.approx(one.high - one.low, rel=0.15)
    assert other.low < one.estimate < other.high
