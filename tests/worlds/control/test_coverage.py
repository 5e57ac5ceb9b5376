"""The exploration of a terrain against a plain walk along each ray, and distances against scipy's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra

from polopt.worlds.control import Coverage, FrontierRule, RandomWalk, episode_returns
from polopt.worlds.control.grids import cells, cost_to_go


def seen_from(wall: np.ndarray, row: int, column: int, reach: float, rays: int) -> set[tuple[int, int]]:
    """The cells that rays show, walked along in steps of a fiftieth of a cell."""
    found = set()
    for k in range(rays):
        angle = 2 * math.pi * k / rays
        for step in np.linspace(0, reach, 200):
            r = row + round(step * round(math.cos(angle), 9))
            c = column + round(step * round(math.sin(angle), 9))
            if not (0 <= r < len(wall) and 0 <= c < len(wall)):
                continue
            found.add((r, c))
            if wall[r, c]:
                break
    return found


def test_what_is_known_is_what_rays_have_shown() -> None:
    world = Coverage(3, size=12, obstacles=7, reach=4.0, rays=16, goal=0.9999, maps=20)
    seen, _ = world.reset(seed=2)
    generator, rule = torch.Generator().manual_seed(0), RandomWalk()
    wall = world.blocked.numpy().copy()
    known = [seen_from(wall[i], 0, 0, 4.0, 16) for i in range(3)]
    for _ in range(12):
        for i in range(3):
            assert {(r, c) for r, c in (seen[i] > 0).nonzero().tolist()} == known[i]
        action = rule(seen.flatten(1), generator)
        seen, reward, terminated, _, _ = world.step(action)
        assert not terminated.any()  # the walk keeps off what it knows
        for i in range(3):
            row, column = world.place[i].tolist()
            now = known[i] | seen_from(wall[i], row, column, 4.0, 16)
            assert float(reward[i]) == pytest.approx(len(now) - len(known[i]) - 0.2, abs=1e-4)
            known[i] = now


def test_collisions_and_the_goal() -> None:
    """Off the terrain at once: -400. Without obstacles rays of the terrain's diagonal show all but a few cells."""
    world = Coverage(1, size=6, obstacles=0, reach=9.0, rays=64, goal=0.5)
    world.reset(seed=0)
    _, reward, terminated, _, info = world.step(torch.tensor([1]))
    assert (float(reward), bool(terminated)) == (-400, True)
    assert float(info["final_obs"][0, 0, 0]) == 0.5
    _, reward, terminated, _, _ = world.step(torch.tensor([0]))
    assert (float(reward), bool(terminated)) == (400, True)


def test_an_enclosed_cell_need_not_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight cells around one: with the edge's ring open, all but the middle can be seen."""
    world = Coverage(1, size=7, obstacles=5, maps=1)
    world.reset(seed=0)
    corners = torch.tensor([[[1, 1], [1, 3], [3, 1], [3, 3], [1, 2]]])
    monkeypatch.setattr(torch, "randint", lambda *args, **settings: corners)
    world._draw_maps()
    assert world.terrains[0, 1:5, 1:5].all()
    assert int(world.visible.sum()) == 49 - 4  # the four cells inside of the block


def test_costs_to_go_are_dijkstras() -> None:
    draw = np.random.default_rng(0)
    cost = draw.uniform(0.5, 3.0, (5, 9, 11))
    cost[draw.random(cost.shape) < 0.3] = np.inf
    target = np.stack([draw.integers(9, size=5), draw.integers(11, size=5)], 1)
    cost[np.arange(5), target[:, 0], target[:, 1]] = 1.0
    found = cost_to_go(torch.tensor(cost), cells((9, 11), torch.tensor(target))).numpy()
    for i in range(5):
        edges = []
        for r in range(9):
            for c in range(11):
                for dr, dc in ((0, 1), (1, 0), (0, -1), (-1, 0)):
                    to = (r + dr, c + dc)
                    if 0 <= to[0] < 9 and 0 <= to[1] < 11 and np.isfinite([cost[i, r, c], cost[i][to]]).all():
                        edges.append((r * 11 + c, to[0] * 11 + to[1], cost[i][to]))
        source, end, weight = map(np.array, zip(*edges, strict=True))
        graph = coo_array((weight, (end, source)), shape=(99, 99))  # backwards, from the target
        exact = dijkstra(graph.tocsr(), indices=target[i, 0] * 11 + target[i, 1]).reshape(9, 11)
        assert np.allclose(found[i], exact)


def test_frontier_rules_explore_every_terrain() -> None:
    world = Coverage(64, size=12, obstacles=5, reach=4.0, horizon=120)
    for gain in (0.0, 0.1):
        assert float(episode_returns(world, FrontierRule(gain=gain, reach=4), 3).min()) > 400


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="Coverage: needs size >= 5"):
        Coverage(1, size=3)
    with pytest.raises(ValueError, match="num_envs >= 1 and horizon >= 1"):
        Coverage(1, horizon=0)
