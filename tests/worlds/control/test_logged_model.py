"""A world that is a log, its region, its costs, and the prices of these."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from scipy.spatial import cKDTree
from torch import Tensor

import polopt.worlds.control  # noqa: F401 - registers the worlds
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.policies.network import NetworkPolicy
from polopt.rewards import PricedCosts
from polopt.step_source import StepSource
from polopt.support import PLAIN
from polopt.worlds.control import DensityRegion, LoggedModel


def log_of(count: int = 60, costs: int = 2, seed: int = 0) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    return {
        "observation": draw.normal(size=(count, 3)).astype(np.float32) * [1, 5, 1],
        "next_observation": draw.normal(size=(count, 3)).astype(np.float32),
        "action": draw.uniform(-2, 3, size=(count, 2)).astype(np.float32),
        "reward": draw.normal(size=count).astype(np.float32),
        "terminated": np.arange(count) % 20 == 19,
        "truncated": np.arange(count) % 20 == 9,
        "cost": draw.uniform(size=(count, costs)).astype(np.float32),
    }


def scaled(log: dict[str, np.ndarray], points: np.ndarray) -> np.ndarray:
    own = np.concatenate([log["observation"], log["action"]], 1)
    low, high = own.min(0), own.max(0)
    return 2 * (points - low) / (high - low) - 1


def test_a_step_leads_where_the_nearest_one_led() -> None:
    log = log_of()
    world = LoggedModel(50, log=log, outside=None, horizon=30)
    tree = cKDTree(scaled(log, np.concatenate([log["observation"], log["action"]], 1)))
    state, _ = world.reset(seed=1)
    firsts = log["observation"][[0, 10, 20, 30, 40, 50]]
    assert all(any(np.allclose(one, first) for first in firsts) for one in state.numpy())
    draw = np.random.default_rng(2)
    for _ in range(5):
        action = draw.uniform(-2, 3, size=(50, 2)).astype(np.float32)
        _, place = tree.query(scaled(log, np.concatenate([state.numpy(), action], 1)))
        after, reward, terminated, _, info = world.step(torch.tensor(action))
        expected = info.get("final_obs", after).numpy()
        np.testing.assert_allclose(expected, log["next_observation"][place], rtol=1e-6)
        np.testing.assert_allclose(reward.numpy(), log["reward"][place], rtol=1e-6)
        np.testing.assert_allclose(info["cost"].numpy()[:, 1:], log["cost"][place], rtol=1e-6)
        assert not info["cost"][:, 0].any()
        np.testing.assert_array_equal(terminated.numpy(), log["terminated"][place])
        state = after


def test_a_density_is_the_kernels_mean_and_its_least_a_quantile() -> None:
    points = np.random.default_rng(3).normal(size=(1500, 2))
    region = DensityRegion(torch.tensor(points), 0.3, 0.1)
    some = np.random.default_rng(4).normal(size=(7, 2))
    expected = [np.mean([np.exp(-((x - p) ** 2).sum() / (2 * 0.3**2)) for p in points]) for x in some]
    np.testing.assert_allclose(region.density(torch.tensor(some)).numpy(), expected, rtol=1e-6)
    own = [np.mean(np.exp(-((x - points) ** 2).sum(1) / (2 * 0.3**2))) for x in points]
    np.testing.assert_allclose(float(region.least), np.quantile(own, 0.1), rtol=1e-6)
    assert int(region.own_inside.sum()) == 1350
    np.testing.assert_array_equal(region.inside(torch.tensor(some)).numpy(), expected >= np.quantile(own, 0.1))


def test_who_leaves_the_region_stays_outside_to_the_end() -> None:
    log = log_of()
    log["action"][:] = np.random.default_rng(5).normal(size=log["action"].shape) * 0.01
    log["action"][:2] = [[-1, -1], [1, 1]]
    world = LoggedModel(4, log=log, outside=0.2, bandwidth=0.3, horizon=3)
    first, _ = world.reset(seed=0)
    far, near = torch.tensor([[1.0, -1.0]]).expand(4, 2), torch.zeros(4, 2)
    state, reward, terminated, truncated, info = world.step(far)
    assert torch.equal(state, first)
    least, most = float(log["reward"].min()), float(log["reward"].max())
    torch.testing.assert_close(reward, torch.full((4,), 2 * least - most))
    assert info["cost"].tolist() == [[1.0, 0.0, 0.0]] * 4
    assert not terminated.any()
    state, reward, _, truncated, info = world.step(near)
    assert torch.equal(state, first)
    assert info["cost"][:, 0].tolist() == [1.0] * 4
    assert not truncated.any()
    _, _, _, truncated, info = world.step(near)
    assert truncated.all()
    assert not world.left.any()  # the next episodes are inside


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": None}, "log lacks reward; it has action"),
        ({"action": np.zeros(60, np.float32)}, r"log\.action must have 2 dimensions"),
        ({"cost": np.zeros((59, 1), np.float32)}, r"log\.cost must have .* length of reward, 60"),
        ({"reward": np.full(60, np.nan, np.float32)}, r"log\.reward has values that are not finite"),
    ],
)
def test_a_log_that_cannot_be(change: dict[str, Any], message: str) -> None:
    log = {name: column for name, column in {**log_of(), **change}.items() if column is not None}
    with pytest.raises(ValueError, match=message):
        LoggedModel(log=log)


def test_settings_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="there is no such file"):
        LoggedModel(log="nowhere.npz")
    with pytest.raises(ValueError, match=r"outside in \[0, 1\)"):
        LoggedModel(log=log_of(), outside=1.0)
    with pytest.raises(ValueError, match="bandwidth > 0"):
        LoggedModel(log=log_of(), bandwidth=0.0)


class CostlyStep(gymnasium.Env[np.ndarray, int]):
    """The third step of an episode ends it; the cost of a step is its number."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> Any:
        self.time += 1
        return np.zeros(1, np.float32), 0.0, self.time == 3, False, {"cost": float(self.time)}


@pytest.mark.parametrize(
    ("mode", "costs", "mask"),
    [
        (AutoresetMode.SAME_STEP, [1, 2, 3, 1, 2, 3], [1, 1, 1, 1, 1, 1]),
        (AutoresetMode.NEXT_STEP, [1, 2, 3, 0, 1, 2], [1, 1, 1, 0, 1, 1]),
    ],
)
def test_costs_of_an_environment_are_columns(mode: AutoresetMode, costs: list[float], mask: list[float]) -> None:
    environments = SyncVectorEnv([CostlyStep] * 2, autoreset_mode=mode)
    policy = NetworkPolicy(observations=1, actions=2)
    source = StepSource(environments, policy, seed=0, generator=torch.Generator().manual_seed(0))
    batch = source.fragments(6)
    assert batch.extras["cost"].tolist() == [[[c] for c in costs]] * 2
    assert batch.mask.tolist() == [[bool(m) for m in mask]] * 2
    assert source.fragments(2).extras["cost"].shape == (2, 2, 1)


def batch_of(cost: Tensor, reward: Tensor) -> Experience:
    mask = torch.tensor([[True, True, True], [True, False, False]])
    return Experience(mask=mask, reward=reward, support=PLAIN, extras={"cost": cost})


def test_prices_rise_by_what_is_above_the_limits() -> None:
    cost = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]], [[1.0, 0.0], [9.0, 9.0], [torch.nan, 9.0]]])
    part = PricedCosts(limits=(0.5, 1.0), lr=0.4, initial=0.1)
    batch = batch_of(cost, torch.ones(2, 3))
    found = part(batch)
    torch.testing.assert_close(found[batch.mask], torch.tensor([0.9, 0.9, 0.8, 0.9]))
    # Means 3/4 and 1/2: prices 0.1 + 0.4 (0.25) and max(0, 0.1 - 0.4 (0.5)).
    torch.testing.assert_close(part.get_buffer("prices"), torch.tensor([0.2, 0.0], dtype=torch.float64))
    assert part.batch_metrics(batch) == pytest.approx(
        {"cost/0": 0.75, "cost/1": 0.5, "cost/price/0": 0.2, "cost/price/1": 0.0}
    )
    part.eval()
    part(batch)
    torch.testing.assert_close(part.get_buffer("prices"), torch.tensor([0.2, 0.0], dtype=torch.float64))


def test_prices_settle_where_the_cost_is_at_its_limit() -> None:
    """A decision with reward x and cost x, x in [0, 1], whose policy takes x = 1 where the price is below 1: on average
    the cost is the limit, and the price 1."""
    part, costs = PricedCosts(limits=(0.3,), lr=0.05), list[float]()
    for _ in range(4000):
        x = 1.0 if float(part.get_buffer("prices")) < 1 else 0.0
        costs.append(x)
        part(batch_of(torch.full((2, 3, 1), x), torch.full((2, 3), x)))
    assert sum(costs[400:]) / len(costs[400:]) == pytest.approx(0.3, abs=0.01)
    assert float(part.get_buffer("prices")) == pytest.approx(1.0, abs=0.05)


def test_other_costs_than_limits_are_refused() -> None:
    with pytest.raises(ExperienceError, match=r"2 costs, as limits has; .*\[2, 3, 1\]"):
        PricedCosts(limits=(0.5, 1.0))(batch_of(torch.zeros(2, 3, 1), torch.ones(2, 3)))
    with pytest.raises(ValueError, match="need limits"):
        PricedCosts(limits=())


def test_a_recipe_learns_in_a_log(tmp_path: Path) -> None:
    from polopt.training import recipe as recipes
    from polopt.training.launch import train

    np.savez(tmp_path / "log.npz", **log_of(200, costs=1))
    settings = {
        "threads": 1,
        "environment": {"id": "polopt/LoggedModel-v0", "settings": {"log": str(tmp_path / "log.npz"), "outside": 0.1}},
        "evaluation.problems": 2,
        "evaluation.quick": 1,
        "stages": {"rl": {"method": {"name": "ogsrl", "limits": [0.1, 0.4], "steps": 10}, "rows": 4, "steps": 3}},
    }
    run = train(recipes.load("pendulum", settings), tmp_path / "run")
    last = run.read("metrics")[-1]
    assert last["cost/0"] > 0.1  # an untrained policy leaves the log
    assert last["cost/price/0"] > 0
    assert 0 <= last["cost/1"] <= 1
