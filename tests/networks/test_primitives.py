"""Movement primitives as trunks: gradients, saved policies, and spaces that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from polopt.networks import MovementPrimitive, Space
from polopt.policies.network import NetworkPolicy

MOVEMENT = MovementPrimitive(position=(0, 1), velocity=(2, 3), actions=5, hidden=(8,))


def policy(**settings: Any) -> NetworkPolicy:
    return NetworkPolicy(observations=5, dimensions=10, trunk=MOVEMENT, seed=3, **settings)


def test_gradients_are_finite_differences() -> None:
    made = MOVEMENT.build(Space(5, dimensions=10), 10, torch.Generator().manual_seed(0)).double()
    seen = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(made, seen, atol=1e-6)
    weight = made.net[-1].weight  # type: ignore[index, union-attr]

    def of_weight(values: torch.Tensor) -> Any:
        return torch.func.functional_call(made, {"net.2.weight": values}, seen)

    assert torch.autograd.gradcheck(of_weight, weight.detach().clone().requires_grad_(), atol=1e-5)


def test_displacements_add_up_to_positions() -> None:
    settings: dict[str, Any] = {"position": (0, 1), "actions": 5, "hidden": (8,)}
    seen = torch.randn(4, 5)
    steps, places = (
        MovementPrimitive(output=output, **settings)
        .build(Space(5, dimensions=10), 10, torch.Generator().manual_seed(0))(seen)
        .unflatten(-1, (5, 2))
        for output in ("displacement", "position")
    )
    torch.testing.assert_close(seen[:, None, :2] + steps.cumsum(1), places)


def test_a_policy_of_movements_is_saved_with_them(tmp_path: Path) -> None:
    made = policy()
    made.save(tmp_path)
    again, seen = NetworkPolicy.load(tmp_path), torch.randn(4, 5)
    assert torch.equal(again.law(seen)[0], made.law(seen)[0])
    assert torch.equal(again.value(seen), made.value(seen))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 36}, "steps must be a multiple of actions, and basis >= 1, found steps = 36, actions = 5"),
        ({"basis": 0}, "found steps = 35, actions = 5 and basis = 0"),
        ({"position": ()}, "needs a position or more, and none or as many velocities, found 0 and 0"),
        ({"velocity": (1, 2)}, "found 1 and 2"),
        ({"time": 10.0}, r"stiffness x time <= 2 steps, beyond which Euler's steps diverge, found 10, 25 and 1"),
    ],
)
def test_settings_that_make_no_movement(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MovementPrimitive(**settings)


@pytest.mark.parametrize(
    ("space", "outputs", "message"),
    [
        (
            Space(5, dimensions=2),
            2,
            "5 actions of 2 coordinates are vectors of 10 numbers, found 2; set environment.chunk",
        ),
        (Space(5, actions=3), 3, "found 3 choices; set environment.chunk"),
        (
            Space(3, dimensions=10),
            10,
            r"must be places among the 3 numbers of an observation, found \[0, 1\] and \[2, 3\]",
        ),
        (Space(5, dimensions=10), 20, "and the policy's head takes 20; set policy.head to gaussian"),
    ],
)
def test_spaces_that_do_not_fit(space: Space, outputs: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MOVEMENT.build(space, outputs, torch.Generator())


def test_normalised_observations_are_refused() -> None:
    with pytest.raises(ValueError, match="reads observations as they are; set it to false"):
        policy(normalise=True)
