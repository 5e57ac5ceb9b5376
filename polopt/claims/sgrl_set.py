"""These programs measure what the paper of 3D-SGRL claims."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.turned_mass import LAYOUT, TurnedMass
from polopt.lab.stepped import learned_in, played
from polopt.methods.sgrl_set import sgrl_set
from polopt.methods.td3 import td3
from polopt.metrics import t_interval
from polopt.networks import Limbs, Space, Subequivariant, SubequivariantQ, subequivariant

SEEDS = range(41, 44)
SECTOR = math.pi / 6


def turn(angle: float, axis: int) -> Tensor:
    """Returns the rotation by an angle about an axis, [3, 3]."""
    found = torch.eye(3, dtype=torch.float64)
    one, two = (axis + 1) % 3, (axis + 2) % 3
    found[[one, two], [one, two]] = math.cos(angle)
    found[one, two], found[two, one] = -math.sin(angle), math.sin(angle)
    return found


def turned(limbs: Limbs, observation: Tensor, rotation: Tensor, *, fixed: tuple[int, ...] = ()) -> Tensor:
    """Turns all vectors of observations but the `fixed` ones."""
    vectors, scalars = limbs.split(observation)
    moved = rotation @ vectors
    for place in fixed:
        moved[..., place] = vectors[..., place]
    return torch.cat([moved.transpose(-1, -2).flatten(-2), scalars], -1).flatten(-2)


@claim(
    "Actions and values are the same in a world that is turned about gravity, and not in one that is tipped over.",
    kind="identity",
    baseline="the world turned about a level axis, where gravity stays",
)
def exact_invariance() -> Finding:
    limbs = Limbs(limbs=3, vectors=6, scalars=2, directions=(0, 1), axes=(3, 4, 5))
    draw = torch.Generator().manual_seed(0)
    space = Space(3 * 20, dimensions=9)
    actor = Subequivariant(limbs=limbs, width=16, mixed=6).build(space, 18, draw).double()
    critic = SubequivariantQ(limbs=limbs, width=16, mixed=6).build(space, draw).double()
    seen = torch.randn(20, 60, generator=draw, dtype=torch.float64)
    vectors = seen.unflatten(-1, (3, 20))
    vectors[..., :3] = torch.tensor([0.0, 0.0, -1.0], dtype=torch.float64)
    action = torch.randn(20, 9, generator=draw, dtype=torch.float64)
    gaps = {}
    for name, axis in (("turned", 2), ("tipped", 0)):
        other = turned(limbs, seen, turn(1.1, axis), fixed=(0,))
        with torch.no_grad():
            ends = (actor(other) - actor(seen)).abs().max(), (critic(other, action) - critic(seen, action)).abs().max()
        gaps[name] = float(max(ends)) if name == "turned" else float(min(ends))
    return Finding(
        measured=gaps,
        criterion="largest change of any number: turned < 1e-10; tipped > 1e-3",
        holds=gaps["turned"] < 1e-10 and gaps["tipped"] > 1e-3,
    )


def distances(kind: str, seed: int, *, rounds: int = 40) -> tuple[float, float]:
    """Returns the mean distance from the goal in the last 5 steps, in directions of training and in all others."""
    common = {"gamma": 0.9, "tau": 0.02, "start": 160, "steps": 8}
    algorithm = (
        sgrl_set(**LAYOUT, width=16, heads=2, layers=1, mixed=6, **common)  # type: ignore[arg-type]
        if kind == "subequivariant"
        else td3(hidden=(32, 32), **common)  # type: ignore[arg-type]
    )
    world = TurnedMass((-SECTOR, SECTOR))
    policy, _ = learned_in(
        world, algorithm, head="deterministic", rounds=rounds, updates=8, seed=seed, lr=3e-3, hidden=(32, 32)
    )
    draw, found = torch.Generator().manual_seed(seed), []
    for sector in ((-SECTOR, SECTOR), (SECTOR, 2 * math.pi - SECTOR)):
        states = played(world, policy, TurnedMass(sector).start(200, draw))
        found.append(float(states[-5:, :, :2].norm(dim=-1).mean()))
    return found[0], found[1]


@claim(
    "What is learned in one direction is known in all.",
    kind="headline",
    cost="slow",
    refuted=True,
    baseline="TD3 with perceptrons",
)
def directions_not_seen() -> Finding:
    own, plain = ([distances(kind, seed) for seed in SEEDS] for kind in ("subequivariant", "perceptrons"))
    gain = t_interval([b[1] - a[1] for a, b in zip(own, plain, strict=True)])
    means = {f"{name}, {where}": sum(f[i] for f in found) / len(found)
             for name, found in (("subequivariant", own), ("perceptrons", plain))
             for i, where in enumerate(("trained", "others"))}  # fmt: skip
    worst = max(others / max(trained, 0.1) for trained, others in own)
    return Finding(
        measured=means | {"gain in others": gain.estimate},
        intervals={"gain in others": (gain.low, gain.high)},
        criterion="distance from goals that begin 2 away, 3 seeds: of its own others < 1.25 times the trained; "
        "perceptrons are further in others, by an interval above 0.5",
        holds=worst < 1.25 and gain.low > 0.5,
        note="It is as far in others as in those of training, which its symmetry gives, and in both further than where "
        "it began, at a mean of 8.4 (3 to 14): in these few updates it does not learn. Perceptrons learn the trained "
        "directions, at 0.6, and fail in others, at 6.4.",
    )


@mutation("forces are read along the world's axes, and not the limb's", kills=exact_invariance)
def world_axes(replace: Replace) -> None:
    def forward(self: subequivariant._Actor, observation: Tensor) -> Tensor:
        z, scalars, norm, _ = self.body(observation)
        return self.turned(z, scalars, norm).movedim(-1, -3).flatten(-3)

    replace(subequivariant._Actor, "forward", forward)
