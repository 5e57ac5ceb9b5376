"""Pathfinding of many agents against plain loops, and its planner against scipy's Dijkstra."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra

from polopt.worlds.control import FollowPath, Pathfinding, PlannedPathfinding, episode_returns
from polopt.worlds.control.pathfinding import all_distances

MOVES = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))
Cell = tuple[int, int]


def moved(wall: np.ndarray, places: list[Cell], actions: list[int], collisions: str) -> list[Cell]:
    """The places of the agents of one grid after a step, one after another."""

    def free(cell: Cell) -> bool:
        return 0 <= cell[0] < len(wall) and 0 <= cell[1] < len(wall) and not wall[cell]

    aims = [(r + MOVES[a][0], c + MOVES[a][1]) for (r, c), a in zip(places, actions, strict=True)]
    if collisions == "block":
        return [
            aim if free(aim) and aim not in places and aims.count(aim) == 1 else place
            for place, aim in zip(places, aims, strict=True)
        ]
    now = list(places)
    for i, aim in enumerate(aims):
        if free(aim) and aim not in now:
            now[i] = aim
    return now


@pytest.mark.parametrize("collisions", ["block", "priority"])
def test_moves_and_arrivals_of_a_grid_at_a_time(collisions: str) -> None:
    world = Pathfinding(24, agents=12, size=8, collisions=collisions, maps=3)  # type: ignore[arg-type]
    world.reset(seed=4)
    draw, blocks = torch.Generator().manual_seed(1), 0
    for _ in range(80):
        places = [tuple(x) for x in world.place.tolist()]
        goals = [tuple(x) for x in world.goal.tolist()]
        action = torch.randint(5, (24,), generator=draw)
        _, reward, *_ = world.step(action)
        for k in range(2):
            rows = slice(12 * k, 12 * k + 12)
            now = moved(world.blocked[k].numpy(), places[rows], action[rows].tolist(), collisions)
            assert [tuple(x) for x in world.place[rows].tolist()] == now
            assert len(set(now)) == 12
            assert reward[rows].tolist() == [float(a == b) for a, b in zip(now, goals[rows], strict=True)]
            blocks += sum(a == b for a, b in zip(now, places[rows], strict=True))
        assert (world.place != world.goal).any(1).all()
    assert blocks > 500
    assert float(world.arrivals.sum()) > 0


def graph(cost: np.ndarray) -> coo_array:
    """Edges between free neighbours, weighted by the cost of the cell that is entered."""
    n, edges = len(cost), []
    for r in range(n):
        for c in range(n):
            for dr, dc in MOVES[1:]:
                to = (r + dr, c + dc)
                if 0 <= to[0] < n and 0 <= to[1] < n and np.isfinite([cost[r, c], cost[to]]).all():
                    edges.append((r * n + c, to[0] * n + to[1], cost[to]))
    source, end, weight = map(np.array, zip(*edges, strict=True))
    return coo_array((weight, (source, end)), shape=(n * n, n * n))


def test_paths_are_of_least_cost() -> None:
    """Costs by hand from what was seen, and the planned way by Dijkstra's algorithm."""
    world = PlannedPathfinding(8, agents=8, size=8, radius=8, maps=1)
    world.reset(seed=2)
    wall = world.blocked[0].numpy()
    away = dijkstra(graph(np.where(wall, np.inf, 1.0)).tocsr(), unweighted=True).reshape(64, 8, 8)
    finite = np.isfinite(away)
    mean = (np.where(finite, away, 0).sum((1, 2)) / np.maximum(finite.sum((1, 2)) - 1, 1)).reshape(8, 8)
    counts = np.zeros((8, 8, 8))
    rule, goals = FollowPath(noise=0.5).prepare(world), world.goal.clone()
    for step in range(25):
        places = world.place.tolist()
        for i in range(8):
            if (world.goal[i] != goals[i]).any() or step == 0:
                counts[i] = 0
            for j, (r, c) in enumerate(places):
                counts[i, r, c] += j != i
        goals = world.goal.clone()
        static = np.maximum(mean, 1)[~wall].max() / np.maximum(mean, 1)
        for i in range(8):
            cost = np.where(wall, np.inf, static + counts[i])
            assert np.allclose(world.costs()[i].numpy(), cost, rtol=1e-5)
            goal = world.goal[i].tolist()
            to = dijkstra(graph(cost).T.tocsr(), indices=goal[0] * 8 + goal[1]).reshape(8, 8)
            path = world.path[i].numpy()
            entered = cost[path].sum() - cost[tuple(places[i])]
            assert path[tuple(places[i])]
            assert path[tuple(goal)]
            assert entered == pytest.approx(to[tuple(places[i])], rel=1e-5)
            first = world.following[i].tolist()
            assert cost[tuple(first)] + to[tuple(first)] == pytest.approx(to[tuple(places[i])], rel=1e-5)
        world.step(
            rule(world.single_observation_space.sample()[None].repeat(8, 0), torch.Generator().manual_seed(step))
        )


def test_the_reward_is_for_the_plan_before() -> None:
    """Alone, an agent that follows is rewarded at every step, and one that stands still never."""
    world = PlannedPathfinding(4, agents=1, size=10, maps=4, horizon=40)
    assert episode_returns(world, FollowPath().prepare(world), 1).tolist() == pytest.approx([0.4] * 4)
    assert float(world.arrivals.sum()) == 0  # of the next episodes
    world.reset(seed=1)
    assert sum(float(world.step(torch.zeros(4, dtype=torch.int64))[1].sum()) for _ in range(10)) == 0


def test_alone_goals_are_reached_in_the_least_time() -> None:
    world = PlannedPathfinding(1, agents=1, size=10, maps=1, static=False, horizon=1000)
    seen, _ = world.reset(seed=3)
    rule, distance = FollowPath().prepare(world), all_distances(world.blocked[0])
    for _ in range(6):
        (r, c), (gr, gc) = world.place[0].tolist(), world.goal[0].tolist()
        needed, before = int(distance[10 * r + c, gr, gc]), float(world.arrivals)
        for k in range(needed):
            assert float(world.arrivals) == before, k
            seen, *_ = world.step(rule(seen.flatten(1), torch.Generator()))
        assert float(world.arrivals) == before + 1


def test_observations_by_hand() -> None:
    world = PlannedPathfinding(2, agents=2, size=6, radius=2, density=0.0, maps=1, static=False)
    world.reset(seed=0)
    world.place, world.goal = torch.tensor([[0, 0], [0, 1]]), torch.tensor([[3, 0], [5, 5]])
    world.counts.zero_()
    seen = world.observe()
    assert seen[0, 0].tolist() == [[-1] * 5] * 2 + [[-1, -1, 1, 0, 0]] * 3
    assert seen[0, 1].nonzero().tolist() == [[2, 3]]
    assert seen[1, 1].nonzero().tolist() == [[2, 1]]
    plain = Pathfinding(2, agents=2, size=6, radius=2, density=0.0, maps=1)
    plain.reset(seed=0)
    plain.place, plain.goal = world.place, world.goal
    assert plain.observe()[:, 2].nonzero().tolist() == [[0, 4, 2], [1, 4, 4]]


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple of agents"):
        Pathfinding(10, agents=16)
    with pytest.raises(ValueError, match="too many"):
        Pathfinding(64, agents=64, size=8)
    with pytest.raises(ValueError, match="prepare it"):
        FollowPath()(torch.zeros(4, 2), torch.Generator())
