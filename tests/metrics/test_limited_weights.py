"""Estimators with limited, marginalised and chosen weights, against sums written out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from polopt.lab.logged import long_walk, rare_actions, small_problem, with_values
from polopt.metrics import (
    ClippedWeights,
    DoublyRobust,
    LeastError,
    LoggedDecisions,
    LoggedValues,
    MarginalImportanceSampling,
    PerDecisionImportanceSampling,
    ShrunkWeights,
    SwitchedWeights,
    TrajectoryImportanceSampling,
    WeightLimit,
    WeightsError,
)


def clipped(weights: list[float]) -> list[float]:
    return [min(w, 1.2) for w in weights]


def switched(weights: list[float]) -> list[float]:
    return list(itertools.takewhile(lambda w: w <= 1.2, weights)) + [0.0] * sum(
        1 for _ in itertools.dropwhile(lambda w: w <= 1.2, weights)
    )


def shrunk(weights: list[float]) -> list[float]:
    return [4.0 * w / (w**2 + 4.0) for w in weights]


LIMITS = {
    "clipped": (ClippedWeights(most=1.2), clipped),
    "switched": (SwitchedWeights(most=1.2), switched),
    "shrunk": (ShrunkWeights(strength=4.0), shrunk),
}


def log() -> LoggedDecisions:
    """60 episodes of one to three decisions, with a model's values."""
    problem, behaviour, target = small_problem(1)
    q = np.random.default_rng(0).normal(size=(3, 3, 2))
    return with_values(problem.sample(behaviour, target, 60, 0), q, target)


@pytest.mark.parametrize("name", LIMITS)
def test_a_doubly_robust_estimate_with_limited_weights_is_its_sum(name: str) -> None:
    limit, expected = LIMITS[name]
    table, total = log(), 0.0
    assert table.q is not None
    assert table.v is not None
    changed = 0
    for b, length in enumerate(table.lengths.tolist()):
        ratio = np.exp((table.target_logp - table.behaviour_logp)[b, :length])
        weights = [float(np.prod(ratio[: t + 1])) for t in range(length)]
        limited = expected(weights)
        changed += limited != weights
        for t in range(length):
            before = limited[t - 1] if t else 1.0
            total += 0.9**t * (limited[t] * (table.reward[b, t] - table.q[b, t]) + before * table.v[b, t])
    found = DoublyRobust(gamma=0.9, model=LoggedValues(), limit=limit).terms(table).estimate()
    assert found == pytest.approx(total / 60, abs=1e-12)
    assert changed > 10


def test_importance_sampling_takes_limits_too() -> None:
    table = log()
    weights = np.exp(table.log_weights())
    whole = TrajectoryImportanceSampling(limit=ClippedWeights(most=1.5)).terms(table).estimate()
    assert whole == pytest.approx(float((np.minimum(weights[:, -1], 1.5) * table.returns(1.0)).mean()), abs=1e-12)
    steps = PerDecisionImportanceSampling(limit=ClippedWeights(most=1.5)).terms(table).estimate()
    assert steps == pytest.approx(float((np.minimum(weights, 1.5) * table.reward).sum(1).mean()), abs=1e-12)


def test_a_limit_that_leaves_nothing_is_one_sentence() -> None:
    with pytest.raises(WeightsError, match="the limit leaves no weight above 0; raise it"):
        PerDecisionImportanceSampling(limit=SwitchedWeights(most=1e-9))(log())


@pytest.mark.parametrize("build", [lambda: ClippedWeights(most=0.0), lambda: ShrunkWeights(strength=-1.0)])
def test_limits_are_positive(build: object) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        build()  # type: ignore[operator]


def test_no_limit_changes_nothing() -> None:
    x = np.array([[0.0, -np.inf], [3.0, 4.0]])
    assert np.array_equal(WeightLimit()(x), x)


def test_the_marginal_weights_are_those_of_the_states() -> None:
    """Over very many episodes the ratio of a state and a step is that of its exact probabilities."""
    problem, behaviour, target = long_walk(4, 3)
    table = problem.simulate(behaviour, target, 200_000, 0)
    found = np.exp(MarginalImportanceSampling().terms(table).log_weight)
    assert table.state is not None
    assert table.action is not None
    law = {"behaviour": problem.start, "target": problem.start}
    for t in range(4):
        exact = law["target"] / law["behaviour"]
        ratio = (target / behaviour)[table.state[:, t], table.action[:, t]]
        assert np.abs(found[:, t] / ratio - exact[table.state[:, t]]).max() < 0.03
        law = {
            name: np.einsum("s,sa,sax->x", law[name], policy, problem.transitions)[:-1]
            for name, policy in (("behaviour", behaviour), ("target", target))
        }
    assert abs(exact - 1).max() > 0.1


def test_simulated_episodes_follow_the_process() -> None:
    problem, behaviour, target = small_problem(2)
    table, chance = problem.all_episodes(behaviour, target)
    drawn = problem.simulate(behaviour, target, 100_000, 0)

    def keys(log: LoggedDecisions) -> list[bytes]:
        assert log.state is not None
        assert log.action is not None
        columns = [log.lengths[:, None], log.state, log.action, np.round(log.reward, 9)]
        return [row.tobytes() for row in np.concatenate(columns, 1)]

    counts: dict[bytes, float] = {}
    for key in keys(drawn):
        counts[key] = counts.get(key, 0.0) + 1e-5
    expected = dict(zip(keys(table), chance.tolist(), strict=True))
    assert counts.keys() <= expected.keys()
    assert sum(abs(counts.get(key, 0.0) - p) for key, p in expected.items()) / 2 < 0.02


def test_the_least_error_is_chosen_by_variance_and_distance() -> None:
    problem, behaviour, target, values = rare_actions(0)
    table = with_values(problem.sample(behaviour, target, 300, 0), values, target)
    base = DoublyRobust(model=LoggedValues())
    candidates = [base.but(limit=SwitchedWeights(most=most)) for most in (0.01, 3.0, 1e9)]
    errors = []
    for candidate in candidates:
        x, y = (e.terms(table).influence() for e in (candidate, base))
        errors.append(x.var(ddof=1) / 300 + (x.mean() - y.mean()) ** 2)
    found = LeastError(candidates=candidates, unbiased=base)(table)
    best = int(np.argmin(errors))
    assert found.values["candidate"] == best
    assert found.values["estimate"] == pytest.approx(candidates[best].terms(table).estimate(), abs=1e-12)
    assert found.values["estimated_error"] == pytest.approx(errors[best] ** 0.5, abs=1e-12)
    own, estimate = base(table).intervals["estimate"], found.values["estimate"]
    bias = candidates[best].terms(table).estimate() - base.terms(table).estimate()
    assert found.values["estimated_bias"] == pytest.approx(bias, abs=1e-12)
    assert abs(bias) > 0.01
    wide = found.intervals["estimate"]
    assert (wide.low, wide.high) == pytest.approx((min(own.low, estimate), max(own.high, estimate)), abs=1e-12)
    assert any("the estimate is biased, by" in caution for caution in found.cautions)
    assert len(set(np.round(errors, 9))) == 3


def test_no_candidates_are_refused() -> None:
    with pytest.raises(ValueError, match="give one candidate or more"):
        LeastError(candidates=[])
