"""A learner of three goals on one grid, whose action values share weights, with and without replay."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from polopt.metrics.lifelong import LifelongLog

SIZE, GOALS = 5, {"A": (4, 4), "B": (0, 4), "C": (4, 0)}
SHARED, OWN = 0.9**0.5, 0.1**0.5  # squares are shares of an update
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
HORIZON, EPISODES, EVALUATIONS, GAMMA, STEP_SIZE, EXPLORE, REPLAYED = 16, 60, 20, 0.9, 0.3, 0.3, 16


class SharedLearner:
    """Q(task, s, a) = sqrt(0.9) u[s, a] + sqrt(0.1) w[task, s, a], fitted to the returns of its own episodes, so that
    nine tenths of every update are of all tasks.

    replay: with each step a batch of earlier steps of all tasks is learned again.
    """

    def __init__(self, seed: int, replay: bool) -> None:
        self.shared = np.zeros((SIZE, SIZE, 4))
        self.own = {task: np.zeros((SIZE, SIZE, 4)) for task in GOALS}
        self.draw, self.replay = np.random.default_rng(seed), replay
        self.memory: list[tuple[str, tuple[int, int], int, float]] = []

    def values(self, task: str, place: tuple[int, int]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = SHARED * self.shared[place] + OWN * self.own[task][place]
        return found

    def play(self, task: str, learn: bool) -> float:
        """Plays an episode from a random place, and returns its discounted return: gamma per step until the goal, 0
        without it."""
        place = int(self.draw.integers(SIZE)), int(self.draw.integers(SIZE))
        steps: list[tuple[tuple[int, int], int]] = []
        reward = 0.0
        while len(steps) < HORIZON and not reward:
            values = self.values(task, place)
            greedy = not learn or self.draw.random() > EXPLORE
            best = np.flatnonzero(values == values.max())
            action = int(self.draw.choice(best)) if greedy else int(self.draw.integers(4))
            steps.append((place, action))
            move = MOVES[action]
            place = (min(max(place[0] + move[0], 0), SIZE - 1), min(max(place[1] + move[1], 0), SIZE - 1))
            reward = float(place == GOALS[task])
        if learn:
            for i, (where, action) in enumerate(steps):
                self.memory.append((task, where, action, reward * GAMMA ** (len(steps) - 1 - i)))
                self._update(*self.memory[-1])
                if self.replay:
                    for j in self.draw.integers(len(self.memory), size=REPLAYED):
                        self._update(*self.memory[j])
        return reward * float(GAMMA ** (len(steps) - 1))

    def _update(self, task: str, place: tuple[int, int], action: int, target: float) -> None:
        change = STEP_SIZE * (target - float(self.values(task, place)[action]))
        self.shared[place][action] += SHARED * change
        self.own[task][place][action] += OWN * change


def lifetime(seed: int, replay: bool, order: Sequence[str] = "ABACA") -> list[tuple[str, str, int, int, float, str]]:
    """Returns the rows of a lifetime: an evaluation of all tasks, then a block of training and an evaluation each."""
    learner = SharedLearner(seed, replay)
    rows, run = [], str(seed)
    for i, trained in enumerate(["", *order]):
        if trained:
            curve = [learner.play(trained, True) for _ in range(EPISODES)]
            rows += [("train", trained, 2 * i - 1, e, x, run) for e, x in enumerate(curve)]
        for task in GOALS:
            rows += [("eval", task, 2 * i, e, learner.play(task, False), run) for e in range(EVALUATIONS)]
    return rows


def expert(seed: int, task: str, replay: bool) -> list[tuple[str, str, int, int, float, str]]:
    """Returns the training curve of a learner of one task alone."""
    learner = SharedLearner(1000 + seed, replay)
    return [("expert", task, 0, e, learner.play(task, True), str(seed)) for e in range(EPISODES)]


def logged(seeds: Sequence[int], replay: bool) -> LifelongLog:
    """Returns the lifetimes of several seeds, and the same experts, which do not replay, for either learner."""
    rows = [row for seed in seeds for row in lifetime(seed, replay)]
    rows += [row for seed in seeds for task in GOALS for row in expert(seed, task, replay=False)]
    return LifelongLog(*map(list, zip(*rows, strict=True)))
