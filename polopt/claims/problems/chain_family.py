"""A family of chains of different length and slipperiness, in which two methods' scores are exact."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polopt.metrics import FamilyScores

SMALL, COST, GAMMA, EXPLORE = 0.3, 0.05, 0.95, 0.2
STEPS, STEP_SIZE = 1000, 0.3
# Centres of the clusters of settings (length, slip), and their shares of the family.
CENTRES = ((3.0, 0.05, 0.3), (5.0, 0.3, 0.1), (9.0, 0.1, 0.15), (14.0, 0.2, 0.25), (18.0, 0.4, 0.2))


def transitions(length: int, slip: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns probabilities [2, states, states] and rewards [2, states] of a chain with an absorbing end: action 0
    takes a small reward and ends; action 1 goes right at a cost, and falls back to the beginning with the probability
    of a slip; the last step pays 1 and ends."""
    P, r = np.zeros((2, length + 1, length + 1)), np.zeros((2, length + 1))
    P[0, :, length] = 1
    r[0, :length] = SMALL
    P[1, length, length] = 1
    for s in range(length):
        P[1, s, s + 1] += 1 - slip
        P[1, s, 0] += slip
        r[1, s] = -COST
    r[1, length - 1] += 1 - slip
    return P, r


def value(P: NDArray[np.float64], r: NDArray[np.float64], policy: NDArray[np.float64]) -> float:
    """Returns the exact value of the beginning under a policy [states, 2]."""
    chain, pay = np.einsum("sa,ast->st", policy, P), np.einsum("sa,as->s", policy, r)
    return float(np.linalg.solve(np.eye(len(pay)) - GAMMA * chain, pay)[0])


def myopic(P: NDArray[np.float64], r: NDArray[np.float64]) -> float:
    """Returns the value of taking the largest reward at once."""
    return value(P, r, np.eye(2)[r.argmax(0)])


def learned(P: NDArray[np.float64], r: NDArray[np.float64], seed: int) -> float:
    """Returns the value of the exploring policy of Q-learning after 1,000 steps."""
    draw = np.random.default_rng(seed)
    end = P.shape[1] - 1
    cumulative = P.cumsum(-1)
    Q, s = np.zeros((end + 1, 2)), 0
    for coin, which, where in draw.random((STEPS, 3)).tolist():
        a = int(which < 0.5) if coin < 3 * EXPLORE else int(Q[s, 1] >= Q[s, 0])
        t = int((cumulative[a, s] > where).argmax())
        reward = r[a, s] if a == 0 or s < end - 1 else float(t == end) - COST
        Q[s, a] += STEP_SIZE * (reward + GAMMA * (0.0 if t == end else max(Q[t])) - Q[s, a])
        s = 0 if t == end else t
    return value(P, r, (1 - EXPLORE) * np.eye(2)[(Q[:, 1] >= Q[:, 0]).astype(int)] + EXPLORE / 2)


def best(P: NDArray[np.float64], r: NDArray[np.float64]) -> float:
    """Returns the optimal value of the beginning."""
    v = np.zeros(P.shape[1])
    for _ in range(2000):
        v = (r + GAMMA * P @ v).max(0)
    return float(v[0])


def family(seed: int, settings: int = 60) -> FamilyScores:
    """Returns the scores of both methods in settings around five centres, as shares of the optimal value."""
    draw = np.random.default_rng(seed)
    rows = []
    for i in range(settings):
        length, slip, _ = CENTRES[draw.choice(len(CENTRES), p=[share for *_, share in CENTRES])]
        size = max(2, round(length + draw.normal(0, 0.7)))
        chance = float(np.clip(slip + draw.normal(0, 0.02), 0.0, 0.9))
        P, r = transitions(size, chance)
        top = best(P, r)
        for name, score in (("myopic", myopic(P, r)), ("q-learning", learned(P, r, 1000 * seed + i))):
            rows.append((name, f"{i:03}", score, size, chance, top))
    method, setting, scores, sizes, chances, tops = map(list, zip(*rows, strict=True))
    return FamilyScores(method, setting, scores, features=np.column_stack([sizes, chances]), best=tops)
