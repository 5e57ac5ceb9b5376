"""A trunk over limbs: what turns and what does not, saved policies, and layouts that do not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from polopt.claims.sgrl_set import turn, turned
from polopt.networks import Limbs, Space, Subequivariant, SubequivariantQ
from polopt.policies.network import NetworkPolicy

LIMBS = Limbs(limbs=2, vectors=5, scalars=1, directions=(0, 1), axes=(2, 3, 4))
TRUNK = Subequivariant(limbs=LIMBS, width=8, heads=2, layers=1, mixed=3)


def policy(**settings: object) -> NetworkPolicy:
    bounds = {"head": "squashed_gaussian", "low": [-1.0] * 6, "high": [1.0] * 6}
    return NetworkPolicy(observations=32, dimensions=6, trunk=TRUNK, seed=3, **bounds, **settings)  # type: ignore[arg-type]


def test_a_policy_with_a_trunk_is_saved_with_it(tmp_path: Path) -> None:
    made = policy()
    made.save(tmp_path)
    again = NetworkPolicy.load(tmp_path)
    seen = torch.randn(4, 32)
    for found, expected in zip(again.law(seen), made.law(seen), strict=True):
        assert torch.equal(found, expected)
    assert torch.equal(again.value(seen), made.value(seen))


def test_values_and_actions_under_turns() -> None:
    space, draw = Space(32, dimensions=6), torch.Generator().manual_seed(0)
    critic = SubequivariantQ(limbs=LIMBS, width=8, mixed=3, ensemble=3).build(space, draw).double()
    seen, action = torch.randn(3, 32, dtype=torch.float64), torch.randn(3, 6, dtype=torch.float64)
    other = turned(LIMBS, seen, turn(0.7, 2) @ turn(0.4, 0))  # of all vectors, gravity too
    assert critic(seen, action).shape == (3, 3)
    torch.testing.assert_close(critic(other, action), critic(seen, action), rtol=0, atol=1e-12)
    tipped = turned(LIMBS, seen, turn(0.7, 0), fixed=(0,))
    assert (critic(tipped, action) - critic(seen, action)).abs().max() > 1e-4


def test_a_layout_that_does_not_fit() -> None:
    with pytest.raises(ValueError, match="are observations of 32 numbers and actions of 6, found 30 and 6"):
        TRUNK.build(Space(30, dimensions=6), 6, torch.Generator())
    with pytest.raises(ValueError, match="directions and axes must be among the 5 vectors"):
        Limbs(vectors=5, axes=(5,))
    with pytest.raises(ValueError, match="width a multiple of heads"):
        Subequivariant(width=9, heads=2)
    with pytest.raises(ValueError, match="reads observations as they are"):
        policy(normalise=True)


def test_weights_follow_from_the_seed_alone() -> None:
    state = torch.get_rng_state()
    one, two = (policy().state_dict() for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert torch.equal(torch.get_rng_state(), state)
