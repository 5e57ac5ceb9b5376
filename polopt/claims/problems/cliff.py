"""Grids with cliffs, data sets of five kinds of behaviour on them, and what is learned from those without acting."""

from __future__ import annotations

import bisect
import dataclasses

import numpy as np
from numpy.typing import NDArray

from polopt.metrics.transitions import LoggedTransitions

Numbers = NDArray[np.float64]
ROWS, COLUMNS, LIMIT = 5, 7, 40
MOVES = np.array([[-1, 0], [0, 1], [1, 0], [0, -1]])
GAMMA = 0.99
KINDS = ("random", "mixed", "replay", "noisy", "expert")


@dataclasses.dataclass(frozen=True, eq=False)
class Cliff:
    """A deterministic grid. A step costs 1; one onto a cliff costs 20 and leads back to the start; the goal ends.

    next_state, reward: [S, A]. start, goal: states.
    """

    next_state: NDArray[np.int64]
    reward: Numbers
    start: int
    goal: int

    def evaluate(self, policy: Numbers) -> float:
        """Returns the expected return of a policy [S, A] in LIMIT steps."""
        value = np.zeros(len(self.next_state))
        for _ in range(LIMIT):
            value = (policy * (self.reward + value[self.next_state])).sum(1)
            value[self.goal] = 0.0
        return float(value[self.start])

    def expert(self) -> Numbers:
        """Returns the best policy, [S, A]."""
        q = np.zeros_like(self.reward)
        for _ in range(200):
            value = q.max(1)
            value[self.goal] = 0.0
            q = self.reward + GAMMA * value[self.next_state]
        return np.eye(4)[q.argmax(1)]

    def play(self, policy: Numbers, transitions: int, draw: np.random.Generator) -> NDArray[np.int64]:
        """Returns rows of episode, step, state, action and 1 where the episode ends, of the policy [S, A]; the last
        episode may be cut."""
        actions, ahead = policy.cumsum(1).tolist(), self.next_state.tolist()
        rows, s, step, episode = [], self.start, 0, 0
        for x in draw.random(transitions).tolist():
            a = min(bisect.bisect_right(actions[s], x), 3)
            ends = ahead[s][a] == self.goal or step + 1 == LIMIT
            rows.append((episode, step, s, a, ends))
            s, step = ahead[s][a], step + 1
            if ends:
                s, step, episode = self.start, 0, episode + 1
        return np.array(rows, int)

    def learn(self, transitions: int, draw: np.random.Generator) -> NDArray[np.int64]:
        """Returns the rows of an online learner from its first decision on: Q-learning, with 10 % random actions."""
        to, reward = self.next_state.tolist(), self.reward.tolist()
        q = [[0.0] * 4 for _ in to]
        rows, s, step, episode = [], self.start, 0, 0
        explores, picks = draw.random(transitions).tolist(), draw.random((transitions, 4)).tolist()
        for explore, pick in zip(explores, picks, strict=True):
            value = pick if explore < 0.1 else [(x, tie) for x, tie in zip(q[s], pick, strict=True)]
            a = max(range(4), key=value.__getitem__)
            ahead = 0.0 if to[s][a] == self.goal else max(q[to[s][a]])
            q[s][a] += 0.5 * (reward[s][a] + GAMMA * ahead - q[s][a])
            ends = to[s][a] == self.goal or step + 1 == LIMIT
            rows.append((episode, step, s, a, ends))
            s, step = to[s][a], step + 1
            if ends:
                s, step, episode = self.start, 0, episode + 1
        return np.array(rows, int)

    def logged(self, kind: str, transitions: int, draw: np.random.Generator) -> NDArray[np.int64]:
        """Returns the rows of one kind of behaviour."""
        expert, uniform = self.expert(), np.full((len(self.next_state), 4), 0.25)
        if kind == "replay":
            return self.learn(transitions, draw)
        if kind == "mixed":
            part = self.play(expert, transitions // 5, draw)
            other = self.play(uniform, transitions - transitions // 5, draw)
            other[:, 0] += part[-1, 0] + 1
            return np.concatenate([part, other])
        share = {"random": 1.0, "noisy": 0.2, "expert": 0.0}[kind]
        return self.play(share * uniform + (1 - share) * expert, transitions, draw)

    def cloned(self, rows: NDArray[np.int64]) -> float:
        """Returns the expected return of the logged actions' frequencies, uniform in states that are not there."""
        counts = np.zeros_like(self.reward)
        np.add.at(counts, (rows[:, 2], rows[:, 3]), 1.0)
        visits = counts.sum(1, keepdims=True)
        return self.evaluate(np.where(visits > 0, counts / np.maximum(visits, 1), 0.25))

    def offline(self, rows: NDArray[np.int64]) -> float:
        """Returns the return of the greedy policy of Q-learning on the rows to its end, from values of 0, which those
        of actions that are not there keep."""
        s, a = np.unique(rows[:, 2:4], axis=0).T
        q = np.zeros_like(self.reward)
        for _ in range(100):
            value = q.max(1)
            value[self.goal] = 0.0
            q[s, a] = self.reward[s, a] + GAMMA * value[self.next_state[s, a]]
        return self.evaluate(np.eye(4)[q.argmax(1)])


def cliff(seed: int) -> Cliff:
    """Returns a random grid of 5 x 7 with a way from the lower left to the lower right corner."""
    draw = np.random.default_rng(seed)
    S = ROWS * COLUMNS
    start, goal = S - COLUMNS, S - 1
    while True:
        cliffs = draw.random(S) < 0.2
        cliffs[[start, goal]] = False
        place = np.stack(np.divmod(np.arange(S), COLUMNS), 1)
        to = np.clip(place[:, None] + MOVES, 0, [ROWS - 1, COLUMNS - 1]) @ [COLUMNS, 1]
        world = Cliff(np.where(cliffs[to], start, to), np.where(cliffs[to], -20.0, -1.0), start, goal)
        if world.evaluate(world.expert()) > -LIMIT:
            return world


def data_sets(world: Cliff, seed: int, copies: int, transitions: int) -> dict[str, NDArray[np.int64]]:
    """Returns the rows of `copies` data sets of each kind, and of the reference, an online learner's."""
    draw = np.random.default_rng(seed)
    found = {f"{kind} {i}": world.logged(kind, transitions, draw) for kind in KINDS for i in range(copies)}
    return found | {"reference": world.learn(transitions, draw)}


def together(world: Cliff, sets: dict[str, NDArray[np.int64]]) -> LoggedTransitions:
    """Returns data sets as one table."""
    rows = np.concatenate(list(sets.values()))
    return LoggedTransitions(
        episode=[f"{i:05}" for i in rows[:, 0]],
        step=rows[:, 1],
        state=rows[:, 2],
        action=rows[:, 3],
        reward=world.reward[rows[:, 2], rows[:, 3]],
        done=rows[:, 4],
        dataset=np.repeat(list(sets), [len(part) for part in sets.values()]),
    )
