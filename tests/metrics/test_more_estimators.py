"""Estimators with models, blends, slates and distributions, against sums written out; the choice of a policy."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from polopt.lab.logged import endless_walk, long_walk, small_problem, varied_actions, with_values
from polopt.lab.slates import slates
from polopt.metrics import (
    BlendedReturns,
    DirectMethod,
    DoublyRobust,
    IndependentImportanceSampling,
    LoggedDataError,
    LoggedDecisions,
    LoggedValues,
    MinimumVarianceValues,
    PerDecisionImportanceSampling,
    PseudoInverse,
    ReturnDistribution,
    StationaryImportanceSampling,
    TabularValues,
    ValuesByAction,
    least_on_simplex,
    select_policy,
)


def test_the_stationary_ratio_is_that_of_the_exact_visits() -> None:
    gamma, steps = 0.9, 60
    problem, behaviour, target, _ = endless_walk(steps, 2, gamma)
    table = problem.simulate(behaviour, target, 4000, 0)
    found = np.exp(StationaryImportanceSampling(gamma=gamma, endless=True).terms(table).log_weight)
    moves = [np.einsum("sa,sax->sx", policy, problem.transitions)[:, :-1] for policy in (behaviour, target)]
    law, logged = problem.start, np.zeros(4)
    for _ in range(steps - 1):
        logged, law = logged + law, law @ moves[0]
    visits = np.linalg.solve((np.eye(4) - gamma * moves[1]).T, problem.start)
    assert table.state is not None
    assert table.action is not None
    exact = (visits / logged)[table.state] * (target / behaviour)[table.state, table.action]
    assert np.abs(found / exact - 1)[:, :-1].max() < 0.05
    assert exact.std() / exact.mean() > 0.3


def test_values_by_action_solve_their_own_equations() -> None:
    """The mean of r + gamma v(s') over the decisions of an action, with v from the values themselves."""
    problem, behaviour, target = long_walk(5, 1)
    table = problem.simulate(behaviour, target, 200, 0)
    found = ValuesByAction()(table, table, 0.8)
    assert table.state is not None
    after = np.concatenate([found.v[:, 1:], np.zeros((200, 1))], 1)
    for action in range(2):
        own = table.action == action
        assert found.q[own] == pytest.approx((table.reward + 0.8 * after)[own].mean(), abs=1e-9)
    values = np.array([found.q[table.action == a][0] for a in range(2)])
    assert found.v == pytest.approx((target @ values)[table.state], abs=1e-9)


def test_least_variance_by_step_is_a_regression_on_the_control_variates() -> None:
    problem, behaviour, target = small_problem(2)
    table = problem.sample(behaviour, target, 100, 0)
    terms = DoublyRobust(gamma=0.9, folds=1, model=MinimumVarianceValues(by_step=True)).terms(table).influence()
    ratio = np.exp(table.log_weights()) * 0.9 ** np.arange(3)
    before = np.concatenate([np.ones((100, 1)), np.exp(table.log_weights())[:, :-1]], 1) * 0.9 ** np.arange(3)
    assert table.state is not None
    assert table.action is not None
    columns = []
    for t in range(3):
        for a in range(2):
            expected = before[:, t] * target[table.state[:, t], a]
            columns.append(table.mask[:, t] * (expected - ratio[:, t] * (table.action[:, t] == a)))
    design = np.stack([np.ones(100), *columns], 1)
    paid = (ratio * table.reward).sum(1)
    rest = paid - design @ np.linalg.lstsq(design, paid, rcond=None)[0]
    assert terms.std() == pytest.approx(rest.std(), rel=1e-6)
    assert terms.std() < 0.99 * PerDecisionImportanceSampling(gamma=0.9).terms(table).influence().std()


def test_a_cut_log_leaves_out_the_last_decision() -> None:
    problem, behaviour, target, _ = endless_walk(6, 0, 0.9)
    table = problem.simulate(behaviour, target, 50, 0)
    other = dataclasses.replace(table, reward=np.where(np.arange(6) == 5, 100.0, table.reward))
    for metric in (StationaryImportanceSampling, DirectMethod):
        kind = {"model": TabularValues(endless=True)} if metric is DirectMethod else {"endless": True}
        one, two = (metric(gamma=0.9, **kind).terms(x).estimate() for x in (table, other))  # type: ignore[arg-type]
        assert one == pytest.approx(two, abs=1e-12)
    assert DirectMethod(gamma=0.9).terms(table).estimate() != DirectMethod(gamma=0.9).terms(other).estimate()


def test_a_blend_of_equals_is_their_value_and_a_perfect_model_is_trusted() -> None:
    problem, behaviour, target = long_walk(6, 4)
    q = problem.values(target, 1.0)[0]
    table = with_values(problem.simulate(behaviour, target, 300, 0), q, target)
    found = BlendedReturns(model=LoggedValues())(table)
    assert found.values["weight_of_the_model"] > 0.5
    wrong = with_values(table, q + 50.0, target)
    assert BlendedReturns(model=LoggedValues())(wrong).values["weight_of_the_model"] < 0.05
    assert "biased" in BlendedReturns(model=LoggedValues())(wrong).cautions[-1]


def test_weights_on_the_simplex() -> None:
    assert least_on_simplex(np.diag([1.0, 3.0])) == pytest.approx([0.75, 0.25])
    assert least_on_simplex(np.array([[1.0, 2.0], [2.0, 9.0]])) == pytest.approx([1.0, 0.0], abs=1e-9)
    assert least_on_simplex(np.zeros((3, 3))) == pytest.approx([0.0, 0.0, 1.0])


def test_slates_are_their_sums() -> None:
    table, _ = slates(3, positions=4).all_slates()
    ratio = np.exp(table.target_logp - table.behaviour_logp)
    own = float((ratio * table.reward).sum(1).mean())
    assert IndependentImportanceSampling().terms(table).estimate() == pytest.approx(own, abs=1e-12)
    whole = float(((1 + (ratio - 1).sum(1)) * table.reward.sum(1)).mean())
    assert PseudoInverse().terms(table).estimate() == pytest.approx(whole, abs=1e-9)
    short = LoggedDecisions(table.lengths - 1, table.reward, table.behaviour_logp, table.target_logp)
    whole = float(((1 + (ratio[:, :3] - 1).sum(1)) * table.reward[:, :3].sum(1)).mean())
    assert PseudoInverse().terms(short).estimate() == pytest.approx(whole, abs=1e-9)


def test_the_distribution_of_unweighted_returns_is_numpys() -> None:
    problem, behaviour, _ = small_problem(1)
    table = problem.sample(behaviour, behaviour, 401, 0)
    found = ReturnDistribution(at=(0.1, 0.5), resamples=50)(table)
    gain = table.returns(1.0)
    assert found.values["quantile 0.1"] == pytest.approx(np.quantile(gain, 0.1, method="inverted_cdf"))
    assert found.values["quantile 0.5"] == pytest.approx(np.median(gain))
    assert found.values["variance"] == pytest.approx(gain.var())
    low = found.intervals["mean"]
    assert low.low < gain.mean() < low.high


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ReturnDistribution(at=(0.0, 0.5)), r"shares in \(0, 1\], found \[0.0\]"),
        (lambda: ReturnDistribution(at=()), "found none"),
        (lambda: BlendedReturns(bias_level=1.0), "bias_level must be in"),
        (lambda: StationaryImportanceSampling(self_normalised=True), "cannot be self-normalised"),
    ],
)
def test_refusals(build: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()  # type: ignore[operator]


def test_visits_without_an_end_are_refused() -> None:
    problem, behaviour, target, _ = endless_walk(6, 0, 0.9)
    with pytest.raises(LoggedDataError, match="never comes to an end"):
        StationaryImportanceSampling(gamma=1.0, endless=True)(problem.simulate(behaviour, target, 50, 0))


def policies(seed: int, n: int = 3000) -> dict[str, LoggedDecisions]:
    """A log for three target policies: the best there is, the one that wrote it, the worst there is."""
    problem, behaviour, _ = varied_actions(seed)
    q = problem.values(behaviour, 1.0)[0][0]
    best, worst = (0.2 * behaviour + 0.8 * np.eye(5)[pick] for pick in (q.argmax(1), q.argmin(1)))
    return {
        name: problem.simulate(behaviour, target, n, seed)
        for name, target in (("best", best), ("same", behaviour), ("worst", worst))
    }


def test_the_policy_that_is_better_is_chosen() -> None:
    logs = policies(0)
    found = select_policy({name: PerDecisionImportanceSampling()(log) for name, log in logs.items()})
    assert found.chosen == "best"
    assert [one.name for one in found.candidates] == ["best", "same", "worst"]
    assert [one.better for one in found.candidates] == [True, False, False]
    assert found.candidates[1].gain.estimate == pytest.approx(0.0, abs=1e-12)
    assert select_policy({"worst": PerDecisionImportanceSampling()(logs["worst"])}).chosen is None
    with pytest.raises(ValueError, match="found none"):
        select_policy({})


def test_policies_that_are_not_better_are_seldom_chosen() -> None:
    """Two candidates that earn what the logging policy does: one of them passes in 5 % of logs at most."""
    chosen = 0
    problem, behaviour, _ = varied_actions(1)
    alike = np.full_like(problem.reward, 1.0) + np.random.default_rng(0).normal(size=(8, 1, 1))
    problem = dataclasses.replace(problem, reward=alike)
    targets = [np.roll(behaviour, shift, 1) for shift in (1, 2)]
    for seed in range(200):
        logs = [problem.simulate(behaviour, target, 1000, seed) for target in targets]
        found = {str(i): PerDecisionImportanceSampling(self_normalised=True)(log) for i, log in enumerate(logs)}
        chosen += select_policy(found).chosen is not None
    assert chosen <= 21  # of 200, beyond which 5 % is improbable (10^-3)
