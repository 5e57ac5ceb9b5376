"""The bound that STARC's plot draws: against random rewards, the reward that attains it, and wrong bounds."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from test_starc import GAMMA, pair

from polopt.methods.starc import Dard, Epic, LeastL2, RewardDistance, ValueLevelled, ValueShaped
from polopt.metrics import MetricDataError, MetricError, SampledRewardPair, reward_regret
from polopt.metrics.reward_regret import deterministic_returns, occupancies, return_range, return_spread
from polopt.report import bound_plot, write_measured

ORDERS = {"l1": 1.0, "l2": 2.0, "linf": float("inf")}


@pytest.mark.parametrize("terminal", [False, True])
def test_occupancies_pay_the_returns(terminal: bool) -> None:
    """The sum of occupancy times reward is the return of every policy, solved for its values."""
    problem = pair(1, terminal)
    mu = occupancies(problem, GAMMA)
    expected = (problem.transitions * problem.reward).sum(-1)
    J, _ = deterministic_returns(problem, GAMMA)
    np.testing.assert_allclose((mu * expected).sum((1, 2)).numpy(), J, atol=1e-10)
    assert not mu[:, problem.terminal].any()


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("levelled", [False, True])
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_the_spread_is_attained_and_never_exceeded(order: float, levelled: bool, terminal: bool) -> None:
    """By policy iteration: of random rewards of norm 1, and of the best reward for the two policies furthest apart."""
    problem = pair(2, terminal)
    spread = return_spread(problem, GAMMA, order, levelled=levelled)
    S, A, _ = problem.transitions.shape
    g = torch.Generator().manual_seed(0)

    def span(reward: torch.Tensor) -> float:
        size = torch.linalg.vector_norm(reward, order)
        return return_range(problem, (problem.transitions * reward).sum(-1), GAMMA) / float(size)

    for _ in range(50):
        reward = torch.randn(S, A, 1 if levelled else S, generator=g, dtype=torch.double).expand(S, A, S)
        assert span(reward * ~problem.terminal[:, None, None]) <= spread + 1e-9
    mu = occupancies(problem, GAMMA)
    best = 0.0
    for i, j in itertools.combinations(range(len(mu)), 2):
        v = (mu[i] - mu[j])[..., None] * (torch.full((S,), 1 / S) if levelled else problem.transitions)
        if order == 2:
            reward = v
        elif order == 1:
            reward = torch.where(v.abs() >= v.abs().amax() - 1e-12, v.sign(), 0.0)
        else:
            reward = v.sign()
        best = max(best, float((v * reward).sum() / torch.linalg.vector_norm(reward, order)))
    assert spread == pytest.approx(best, abs=1e-9)


FORMS = [ValueLevelled(), ValueShaped(), LeastL2(), Epic()]


@pytest.mark.parametrize("canonical", FORMS, ids=[type(c).__name__ for c in FORMS])
@pytest.mark.parametrize("metric", ["l1", "l2", "linf"])
def test_no_reward_lies_above_the_bound(canonical, metric) -> None:
    distance = RewardDistance(gamma=GAMMA, canonical=canonical, metric=metric, norm=metric, random_rewards=60)
    for seed, terminal in ((0, False), (1, True), (2, False)):
        problem = pair(seed, terminal)
        plot = distance.plot(problem)
        assert plot is not None
        assert len(plot.x) == 60
        assert (plot.y <= plot.bound(plot.x) + 1e-9).all()
        assert plot.at[1] <= plot.bound([plot.at[0]])[0] + 1e-9
        assert plot.at[:2] == (distance.distance(problem), reward_regret(problem, GAMMA).worst)
        # From the reward itself to its opposite.
        assert plot.x.min() == pytest.approx(0, abs=1e-9)
        assert plot.x.max() == pytest.approx(2, abs=1e-9)


def test_a_wrong_bound_is_crossed() -> None:
    """Half the slope, and a bound without the norm of the first reward, have points above them."""
    distance = RewardDistance(gamma=GAMMA)
    crossed = {"half": 0, "without the norm": 0}
    for seed in range(5):
        plot = distance.plot(pair(seed))
        assert plot is not None
        size = distance.standardised(pair(seed), pair(seed).reward)[1]
        for name, factor in (("half", 0.5), ("without the norm", 1 / size)):
            wrong = dataclasses.replace(plot, slope=plot.slope * factor)
            crossed[name] += int((wrong.y > wrong.bound(wrong.x) + 1e-9).sum())
    assert all(count > 20 for count in crossed.values()), crossed


def test_what_has_no_bound_has_no_plot() -> None:
    problem = pair(0)
    assert RewardDistance(gamma=GAMMA, canonical=Dard()).plot(problem) is None
    assert RewardDistance(gamma=GAMMA, max_policies=3).plot(problem) is None
    sample = SampledRewardPair(*[torch.zeros(2, 1) if i not in (1, 4) else torch.zeros(2) for i in range(6)])
    assert RewardDistance().plot(sample) is None
    with pytest.raises(MetricError, match="bounds no regret"):
        RewardDistance(canonical=Dard()).slope(problem)
    with pytest.raises(MetricDataError, match="more than max_policies"):
        RewardDistance(max_policies=3).slope(problem)
    with pytest.raises(MetricError, match="has no bound on these data"):
        bound_plot(RewardDistance(canonical=Dard()), problem)
    trivial = problem.replace(reward=torch.ones_like(problem.reward))
    assert RewardDistance(gamma=GAMMA).slope(trivial) == 0


def test_the_plot_and_the_page(tmp_path: Path) -> None:
    metric, problem = RewardDistance(gamma=GAMMA, random_rewards=20), pair(0)
    plot = metric.plot(problem)
    assert plot is not None
    points, own, line = bound_plot(metric, problem).data
    np.testing.assert_allclose(points.x, plot.x, rtol=1e-4, atol=1e-12)
    np.testing.assert_allclose(points.y, plot.y, rtol=1e-4, atol=1e-12)
    assert (own.x[0], own.y[0]) == plot.at[:2]
    np.testing.assert_allclose(line.y, plot.bound(line.x), atol=1e-12)
    assert 1 / plot.slope in list(line.x), "the corner where the line meets 1"
    page = write_measured(metric, "starc", problem, metric(problem), Path("rewards.jsonl"), tmp_path / "page.html")
    text = page.read_text()
    specs = json.loads(text.split('id="figures">')[1].split("</script>")[0])
    assert len(specs["bound"]["data"][0]["x"]) == 20
    assert "0 of 20" in text
