"""The fishery against the paper's equations a copy at a time, and its optimum against an enumeration."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from polopt.worlds.control import (
    CautionaryRule,
    ConstantEscapement,
    ConstantMortality,
    Fishery,
    FisheryOptimum,
    episode_returns,
)
from polopt.worlds.control.fishery import solve_one_species


def grown(stock: list[float], noise: list[float], r: float) -> list[float]:
    """One step of growth of three species, as arXiv:2308.13654 has it, with its parameters."""
    x, y, z = stock
    dx = r * x * (1 - x) - 0.3 * z * x**2 / (0.09 + x**2) - 0.1 * x * y + 0.1 * x * noise[0]
    dy = y * (1 - y) - 1.1 * 0.3 * z * y**2 / (0.09 + y**2) - 0.1 * x * y + 0.1 * y * noise[1]
    dz = z * (0.1 * (x + 1.1 * y) - 0.1) + 0.1 * z * noise[2]
    return [max(x + dx, 0.0), max(y + dy, 0.0), max(z + dz, 0.0)]


def test_a_copy_at_a_time() -> None:
    """Stocks, rewards and ends of 60 steps, with the world's own random numbers, in plain Python."""
    world = Fishery(8, species=3, fisheries=2, drift=0.5)
    seen, _ = world.reset(seed=5)
    draw = torch.Generator().manual_seed(5)
    torch.randn(8, 3, generator=draw)
    stocks, age, collapses = (4 * seen).tolist(), [0] * 8, 0
    for _ in range(60):
        action = [[0.1 + 0.1 * i, 0.2] for i in range(8)]
        noise = torch.randn(8, 3, generator=draw).tolist()
        seen, reward, terminated, _, info = world.step(torch.tensor(action))
        after = 4 * info.get("final_obs", seen)
        for i in range(8):
            caught = [stocks[i][j] * action[i][j] for j in range(2)]
            left = [stocks[i][0] - caught[0], stocks[i][1] - caught[1], stocks[i][2]]
            stocks[i] = grown(left, noise[i], 1 - 0.5 * age[i] / 200)
            over = min(stocks[i]) <= 0.05
            assert bool(terminated[i]) == over
            assert float(reward[i]) == pytest.approx(sum(caught) - (100 / (age[i] + 1) if over else 0), rel=1e-4)
            assert after[i].tolist() == pytest.approx(stocks[i], rel=1e-4, abs=1e-5)
            age[i] = 0 if over else age[i] + 1
        if ended := int(terminated.sum()):
            torch.randn(ended, 3, generator=draw)
            collapses += ended
        stocks = (4 * seen).tolist()
    assert collapses > 5


def test_without_noise_the_best_escapement_is_where_growth_is_largest() -> None:
    """Of logistic growth alone, K / 2, which yields r K / 4 a step; the optimum of the grid finds the same."""
    plain = {"sigma": 0.0, "spread": 0.0, "parameters": {"beta": 0.0}}
    world = Fishery(1, species=1, horizon=50, **plain)
    returns = {s: float(episode_returns(world, ConstantEscapement(escapement=s))) for s in (0.4, 0.5, 0.6)}
    assert returns[0.5] == pytest.approx((0.7 - 0.5) + 49 * 0.25, rel=1e-4)
    assert max(returns, key=lambda s: returns[s]) == 0.5
    found = FisheryOptimum().prepare(world)
    assert isinstance(found, FisheryOptimum)
    assert float(found.escaped[300]) == pytest.approx(0.5, abs=0.006)
    assert found.value == pytest.approx(returns[0.5] + 0.5 - 0.05, rel=0.02)  # the last step may harvest nearly all


def test_the_optimum_of_two_steps_is_an_enumeration() -> None:
    """Every pair of escapements on a grid, with the expectation over the first step's noise by a sum of its own."""
    r, K, v0, beta, sigma = 1.0, 1.0, 0.3, 0.1, 0.1
    values, _ = solve_one_species(r, K, v0, beta, sigma, 2, 101, 201)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()
    stock, best, grid = 0.7, -math.inf, np.linspace(0, 2, 101)

    def growth(e: float) -> float:
        return e + r * e * (1 - e / K) - beta * e**2 / (v0**2 + e**2)

    def chance(e: float) -> float:
        return 0.5 * math.erfc((growth(e) - 0.05) / (sigma * e) / math.sqrt(2)) if e > 0 else 1.0

    # In the last step all is taken that does not end in collapse, whose penalty is 50.
    cost = np.array([e + 50 * chance(e) for e in grid])
    for s in np.linspace(0, stock, 36):
        after = growth(s) + sigma * s * nodes
        last = np.array([x - np.min(cost[grid <= x + 1e-9]) for x in np.clip(after, 0, 2)])
        first = 100 * chance(s)
        worth = stock - s - first + float((weights * np.where(after > 0.05, last, 0)).sum())
        best = max(best, worth)
    assert float(np.interp(stock, np.linspace(0, 2, 101), values)) == pytest.approx(best, abs=0.02)


def test_rules_by_hand() -> None:
    seen = torch.tensor([[0.8, 0.4]]) / 4
    none = torch.Generator()
    assert ConstantMortality(fraction=0.3, fisheries=2)(seen, none).tolist() == [pytest.approx([0.3, 0.3])]
    assert ConstantEscapement(escapement=0.5, fisheries=2)(seen, none).tolist() == [pytest.approx([0.375, 0.0])]
    rule = CautionaryRule(fraction=0.4, least=0.2, enough=0.6, fisheries=2)
    assert rule(seen, none).tolist() == [pytest.approx([0.4, 0.2])]


@pytest.mark.parametrize("wrong", [{"species": 2}, {"fisheries": 2, "species": 1}, {"sigma": -1.0}, {"drift": 2.0}])
def test_wrong_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="Fishery"):
        Fishery(1, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no parameter 'q'"):
        Fishery(1, parameters={"q": 1.0})
