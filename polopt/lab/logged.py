"""Small finite-horizon problems for off-policy evaluation, with all episodes and exact values."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from polopt.metrics import LoggedDecisions, OffPolicyEstimator

# Seeds of the random problems on which claims are measured.
PROBLEMS = range(20)

Numbers = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, eq=False)
class EpisodicProblem:
    """A finite Markov decision process with a horizon.

    start: [S].
    transitions: [S, A, S + 1], the last column ends the episode.
    reward: [S, A, S + 1].
    horizon: an episode also ends after this many decisions.
    """

    start: Numbers
    transitions: Numbers
    reward: Numbers
    horizon: int

    def values(self, policy: Numbers, gamma: float) -> tuple[Numbers, Numbers]:
        """Returns q [horizon, S, A] and v [horizon + 1, S] of each step under a policy [S, A], by backward
        induction."""
        S, A = policy.shape
        q, v = np.zeros((self.horizon, S, A)), np.zeros((self.horizon + 1, S))
        for t in range(self.horizon - 1, -1, -1):
            next_value = np.append(v[t + 1], 0.0)
            q[t] = (self.transitions * (self.reward + gamma * next_value)).sum(-1)
            v[t] = (policy * q[t]).sum(-1)
        return q, v

    def value(self, policy: Numbers, gamma: float) -> float:
        """E[sum_t gamma^t r_t]."""
        return float(self.start @ self.values(policy, gamma)[1][0])

    def all_episodes(self, behaviour: Numbers, target: Numbers) -> tuple[LoggedDecisions, Numbers]:
        """Returns every episode of positive probability under `behaviour` [S, A], and that probability [B]."""
        ended: list[tuple[float, list[tuple[int, int, float]]]] = []
        going = [(float(p), s, list[tuple[int, int, float]]()) for s, p in enumerate(self.start) if p > 0]
        for _ in range(self.horizon):
            further = []
            for chance, s, path in going:
                for a, s_next in np.argwhere(behaviour[s][:, None] * self.transitions[s] > 0).tolist():
                    p = chance * behaviour[s, a] * self.transitions[s, a, s_next]
                    longer = [*path, (s, a, float(self.reward[s, a, s_next]))]
                    if s_next == len(self.start):
                        ended.append((p, longer))
                    else:
                        further.append((p, s_next, longer))
            going = further
        ended += [(p, path) for p, _, path in going]
        return logged([path for _, path in ended], behaviour, target), np.array([p for p, _ in ended])

    def sample(self, behaviour: Numbers, target: Numbers, episodes: int, seed: int) -> LoggedDecisions:
        """Samples `episodes` independent episodes of `behaviour`."""
        table, chance = self.all_episodes(behaviour, target)
        return table[np.random.default_rng(seed).choice(len(table), episodes, p=chance / chance.sum())]

    def simulate(self, behaviour: Numbers, target: Numbers, episodes: int, seed: int) -> LoggedDecisions:
        """Simulates `episodes` independent episodes of `behaviour`, where they are too many to list."""
        draw, S = np.random.default_rng(seed), len(self.start)
        actions, states = behaviour.cumsum(1), self.transitions.cumsum(2)
        s = draw.choice(S, episodes, p=self.start)
        lengths = np.zeros(episodes, int)
        cells = np.zeros((3, episodes, self.horizon))
        for t in range(self.horizon):
            rows = np.flatnonzero(s < S)
            here = s[rows]
            a = (draw.random((len(rows), 1)) >= actions[here, :-1]).sum(1)
            s_next = (draw.random((len(rows), 1)) >= states[here, a, :-1]).sum(1)
            cells[:, rows, t] = here, a, self.reward[here, a, s_next]
            lengths[rows] += 1
            s[rows] = s_next
        return _table(lengths, cells, behaviour, target)


def logged(paths: list[list[tuple[int, int, float]]], behaviour: Numbers, target: Numbers) -> LoggedDecisions:
    """Returns episodes, given as lists of (state, action, reward), as a table under two policies [S, A]."""
    T = max(map(len, paths))
    cells = np.zeros((3, len(paths), T))
    for b, path in enumerate(paths):
        cells[:, b, : len(path)] = np.transpose(path)
    return _table(np.array([len(path) for path in paths]), cells, behaviour, target)


def _table(lengths: NDArray[np.int_], cells: Numbers, behaviour: Numbers, target: Numbers) -> LoggedDecisions:
    """Returns the table of states, actions and rewards, `cells` [3, B, T]."""
    state, action = cells[0].astype(int), cells[1].astype(int)
    with np.errstate(divide="ignore"):
        own, other = (np.log(policy)[state, action] for policy in (behaviour, target))
    return LoggedDecisions(lengths, cells[2], own, other, state=state, action=action)


def with_values(table: LoggedDecisions, q: Numbers, target: Numbers) -> LoggedDecisions:
    """Returns the table with q [T, S, A] of its decisions, and v = sum_a target(a | s) q(s, a), as columns."""
    assert table.state is not None
    steps = np.arange(table.state.shape[1])[None, :]
    return dataclasses.replace(table, q=q[steps, table.state, table.action], v=(target * q).sum(-1)[steps, table.state])


def small_problem(seed: int = 0) -> tuple[EpisodicProblem, Numbers, Numbers]:
    """Returns a problem, a behaviour policy and a target policy [S, A].

    The problem has three states, two actions and at most three decisions; some episodes end early.
    """
    draw = np.random.default_rng(seed)
    transitions = draw.dirichlet(np.full(4, 0.7), (3, 2))
    transitions[:, :, 2] = 0  # for fewer episodes
    transitions /= transitions.sum(-1, keepdims=True)
    problem = EpisodicProblem(draw.dirichlet(np.ones(3)), transitions, draw.normal(size=(3, 2, 4)), 3)
    behaviour, target = (draw.dirichlet(np.full(2, 2.0), 3) for _ in range(2))
    return problem, 0.8 * behaviour + 0.1, target


def estimated(
    problem: EpisodicProblem,
    behaviour: Numbers,
    target: Numbers,
    metric: OffPolicyEstimator,
    q: Numbers | None = None,
) -> tuple[float, float]:
    """Returns the exact mean and variance of an estimate from one episode, for an estimator that is a mean over
    episodes.

    q: [T, S, A] the values of the model that the estimator reads from the table.
    """
    table, chance = problem.all_episodes(behaviour, target)
    terms = metric.terms(table if q is None else with_values(table, q, target)).influence()
    mean = float(chance @ terms)
    return mean, float(chance @ (terms - mean) ** 2)


def rare_actions(seed: int) -> tuple[EpisodicProblem, Numbers, Numbers, Numbers]:
    """Returns a problem of one decision, a behaviour policy and a target policy [S, A], and a model's values [1, S, A].

    Eight contexts, five actions, of which the behaviour policy takes some rarely, so that weights reach the hundreds;
    rewards are 1 on average, and the model's values are half of the true ones.
    """
    draw = np.random.default_rng(seed)
    S, A = 8, 5
    transitions = draw.dirichlet(np.ones(S + 1), (S, A))
    reward = 1 + draw.normal(size=(S, A, 1)) + draw.normal(size=(S, A, S + 1))
    problem = EpisodicProblem(np.full(S, 1 / S), transitions, reward, 1)
    behaviour = 0.99 * draw.dirichlet(np.full(A, 0.3), S) + 0.01 / A
    target = draw.dirichlet(np.ones(A), S)
    return problem, behaviour, target, problem.values(target, 1.0)[0] / 2


def varied_actions(seed: int) -> tuple[EpisodicProblem, Numbers, Numbers]:
    """Returns a problem of one decision, a behaviour policy and a target policy [S, A].

    Eight contexts, five actions of probability 0.02 or more; an action's reward is a mean of its own, which differs
    between contexts by as much, without noise.
    """
    draw = np.random.default_rng(seed)
    S, A = 8, 5
    transitions = np.zeros((S, A, S + 1))
    transitions[:, :, -1] = 1.0
    reward = draw.normal(size=(1, A, 1)) + draw.normal(size=(S, A, 1)) + np.zeros((S, A, S + 1))
    behaviour = 0.9 * draw.dirichlet(np.full(A, 0.5), S) + 0.1 / A
    return EpisodicProblem(np.full(S, 1 / S), transitions, reward, 1), behaviour, draw.dirichlet(np.ones(A), S)


def long_walk(horizon: int, seed: int) -> tuple[EpisodicProblem, Numbers, Numbers]:
    """Returns a problem of four states and two actions that goes on to its horizon, a behaviour policy and a target
    policy [S, A]; the policies take an action with probabilities of 0.5 and 0.8."""
    draw = np.random.default_rng(seed)
    transitions = np.concatenate([draw.dirichlet(np.ones(4), (4, 2)), np.zeros((4, 2, 1))], 2)
    problem = EpisodicProblem(np.full(4, 0.25), transitions, draw.normal(size=(4, 2, 5)), horizon)
    likelier = draw.integers(2, size=4)
    target = np.where(np.arange(2)[None] == likelier[:, None], 0.8, 0.2)
    return problem, np.full((4, 2), 0.5), target


def endless_walk(length: int, seed: int, gamma: float) -> tuple[EpisodicProblem, Numbers, Numbers, float]:
    """Returns the problem of `long_walk`, cut after `length` decisions, its policies [S, A], and the target policy's
    discounted value of going on for ever."""
    problem, behaviour, target = long_walk(length, seed)
    moves = (target[:, :, None] * problem.transitions[:, :, :-1]).sum(1)
    paid = (target[:, :, None] * problem.transitions * problem.reward).sum((1, 2))
    value = problem.start @ np.linalg.solve(np.eye(len(moves)) - gamma * moves, paid)
    return problem, behaviour, target, float(value)


def small_log(seed: int) -> LoggedDecisions:
    """Returns 60 episodes of up to three decisions."""
    problem, behaviour, target = small_problem(0)
    return problem.sample(behaviour, target, 60, seed)
