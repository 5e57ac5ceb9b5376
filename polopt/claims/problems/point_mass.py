"""Demonstrations of a point mass that is brought to rest, and linear policies cloned from them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_discrete_are
from scipy.spatial import KDTree

from polopt.metrics.transitions import LoggedTransitions

Numbers = NDArray[np.float64]
STEPS = 40
# Position and speed after a tenth of a second, by themselves and by the force.
A, B = np.array([[1.0, 0.1], [0.0, 1.0]]), np.array([[0.005], [0.1]])
# The demonstrator's force is cut off there, which no linear policy can follow.
MOST = 2.0


def gain() -> Numbers:
    """Returns the linear-quadratic regulator's gain, [1, 2], for costs 1 of position and 0.1 of speed and force."""
    P = solve_discrete_are(A, B, np.diag([1.0, 0.1]), np.array([[0.1]]))
    found: Numbers = np.linalg.solve(B.T @ P @ B + 0.1, B.T @ P @ A)
    return found


def demonstrate(
    sets: int, draw: np.random.Generator, *, system: float = 0.0, label: float = 0.0, acted: float = 0.0,
    starts: float = 0.1, demonstrations: int = 20, distinct: int | None = None,
) -> tuple[Numbers, Numbers]:  # fmt: skip
    """Returns states [sets, demonstrations, STEPS, 2] and recorded forces [sets, demonstrations, STEPS, 1].

    Standard deviations of noise: system: of the motion; label: of the recorded force alone; acted: of the force that
    acts and is recorded; starts: of the first states around (1, 0). distinct: how many first states there are, of each
    as many demonstrations; None is as many as demonstrations.
    """
    K, shape = gain(), (sets, demonstrations)
    first = starts * draw.normal(size=(sets, distinct or demonstrations, 2))
    x = np.array([1.0, 0.0]) + np.repeat(first, demonstrations // (distinct or demonstrations), 1)
    states, forces = [], []
    for _ in range(STEPS):
        force = -np.clip(x @ K.T, -MOST, MOST) + acted * draw.normal(size=(*shape, 1))
        states.append(x)
        forces.append(force + label * draw.normal(size=(*shape, 1)))
        x = x @ A.T + force @ B.T + system * draw.normal(size=(*shape, 2)) * [0.3, 1.0]
    return np.stack(states, 2), np.stack(forces, 2)


def success(states: Numbers, forces: Numbers, seed: int, within: float = 0.03) -> Numbers:
    """Returns, of the linear policy that fits each set best, the share of 200 starts that end near rest, [sets]."""
    x, y = states.reshape(len(states), -1, 2), forces.reshape(len(forces), -1, 1)
    fitted = np.linalg.solve(x.swapaxes(1, 2) @ x, x.swapaxes(1, 2) @ y)
    at = np.array([1.0, 0.0]) + 0.3 * np.random.default_rng(seed).normal(size=(len(fitted), 200, 2))
    for _ in range(STEPS):
        at = at @ A.T + (at @ fitted) @ B.T
    found: Numbers = (np.linalg.norm(at, axis=2) < within).mean(1)
    return found


def as_data(states: Numbers, forces: Numbers, name: str = "data") -> LoggedTransitions:
    """Returns one set's demonstrations, [demonstrations, STEPS, .], as data."""
    n = len(states)
    return LoggedTransitions(
        episode=np.repeat([f"{i:03}" for i in range(n)], STEPS),
        step=np.tile(np.arange(STEPS), n),
        state=states.reshape(-1, 2),
        action=forces.reshape(-1, 1),
        dataset=[name] * (n * STEPS),
    )


def joined(parts: list[LoggedTransitions]) -> LoggedTransitions:
    """Returns data sets as one table."""
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("episode", "step", "state", "action", "dataset")
    }
    return LoggedTransitions(**columns)


def neighbour_success(states: Numbers, forces: Numbers, seed: int, k: int = 5, within: float = 0.1) -> Numbers:
    """Returns, of policies that take the mean force of the k nearest recorded states, the share of 100 starts that end
    near rest, [sets]."""
    draw, found = np.random.default_rng(seed), []
    for x, y in zip(states.reshape(len(states), -1, 2), forces.reshape(len(forces), -1), strict=True):
        tree, at = KDTree(x), np.array([1.0, 0.0]) + 0.3 * draw.normal(size=(100, 2))
        for _ in range(STEPS):
            force = y[tree.query(at, range(1, k + 1))[1]].mean(1, keepdims=True)
            at = at @ A.T + force @ B.T
        found.append((np.linalg.norm(at, axis=1) < within).mean())
    return np.array(found)
