"""A mass with a delayed motor in a wind: its steps by hand, and its optimum against a solver of scipy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.linalg import solve_discrete_are

from polopt.worlds.control import HiddenDynamics, HiddenDynamicsOptimum, episode_returns
from polopt.worlds.control.hidden import feedback


def test_steps_by_hand() -> None:
    """An action counts two steps later, with the gain and the wind of the copy; a wall stops the mass."""
    world = HiddenDynamics(2, delay=2, nuisance=1, horizon=50)
    shown, _ = world.reset(seed=0)
    meaningless = shown["observation"][:, 2].clone()
    gain, wind = shown["privileged"].double().T
    assert ((gain >= 0.5) & (gain <= 2) & (wind.abs() <= 2)).all()
    x, v = shown["observation"][:, :2].double().T
    queue = [torch.zeros(2), torch.zeros(2)]
    for t in range(50):
        action = torch.tensor([8.0, -3.0]) if t < 25 else torch.tensor([-8.0, 0.5])
        queue.append(action)
        reward = -0.1 * (x**2 + 0.1 * v**2 + 0.01 * action**2)
        v = v + 0.1 * (gain * queue[t] + wind)
        x = x + 0.1 * v
        v, x = torch.where(x.abs() >= 2, 0, v), x.clamp(-2, 2)
        shown, found, terminated, truncated, info = world.step(action[:, None])
        torch.testing.assert_close(found.double(), reward, rtol=0, atol=1e-5)
        assert not terminated.any()
        assert bool(truncated.all()) == (t == 49)
        last = info.get("final_obs", shown)
        torch.testing.assert_close(last["observation"][:, :2].double(), torch.stack([x, v], 1), rtol=0, atol=1e-4)
        assert torch.equal(last["observation"][:, 2], meaningless)
    assert not torch.equal(shown["privileged"].double(), torch.stack([gain, wind], 1))


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_the_feedback_is_that_of_a_riccati_solver(delay: int) -> None:
    for gain in (0.5, 1.0, 2.0):
        n = 2 + delay
        A, B, Q = np.zeros((n, n)), np.zeros((n, 1)), np.zeros((n, n))
        A[0, :2], A[1, 1], Q[0, 0], Q[1, 1] = (1, 0.1), 1, 1, 0.1
        pushed = A[:, 2:3] if delay else B
        pushed[:2, 0] = 0.01, 0.1
        for i in range(2, n - 1):
            A[i, i + 1] = 1
        if delay:
            B[-1, 0] = 1
        R = np.array([[0.01 / gain**2]])
        P = solve_discrete_are(A, B, Q, R)
        expected = np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)[0]
        np.testing.assert_allclose(feedback(torch.tensor([gain]).double(), delay)[0], expected, atol=1e-5)


def test_the_optimum_beats_its_neighbours() -> None:
    """Without wind, and with walls that are not reached, a larger or a smaller feedback pays more."""
    world = HiddenDynamics(300, wind=0.0, shown=True)
    rule = HiddenDynamicsOptimum().prepare(world)
    best = float(episode_returns(world, rule, seed=1).mean())

    class Scaled(HiddenDynamicsOptimum):
        scale: float = 1.0

        def forward(self, observation: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
            return self.scale * super().forward(observation, generator)

    for scale in (0.9, 1.1):
        assert float(episode_returns(world, Scaled(delay=3, scale=scale), seed=1).mean()) < best - 1e-4


def test_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="wind, delay and nuisance >= 0"):
        HiddenDynamics(1, wind=-1.0)
    with pytest.raises(ValueError, match="shown to true"):
        HiddenDynamicsOptimum().prepare(HiddenDynamics(1))
