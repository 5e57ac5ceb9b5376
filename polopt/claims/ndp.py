"""These programs measure what the paper of NDP claims."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Generator, Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.reaches import POINTS, Reach, contexts, curves, demonstrations
from polopt.experience import Experience
from polopt.lab.effects import Less, More, effect
from polopt.lab.stepping import policy_for, trained
from polopt.lab.transitions import learned_from
from polopt.methods.bc import bc
from polopt.methods.ndp import ndp
from polopt.methods.ppo import control_ppo
from polopt.networks import MovementPrimitive
from polopt.worlds.control.chunks import ChunkedWorld


def imitator() -> Algorithm:
    """Returns imitation by movements of 20 points; its network has 1,710 parameters, a perceptron's 2,568."""
    movement = MovementPrimitive(
        position=(0, 1), actions=POINTS, output="position", basis=6, steps=100, hidden=(32, 32), activation="relu"
    )
    return bc().but(trunk=movement)


def error(algorithm: Algorithm, seed: int, step_size: float, *, sideways: bool) -> float:
    """Returns the squared error of a coordinate on 1,000 other reaches, after 1,000 minibatches of 200 noisy ones."""
    log = demonstrations(200, 0.05, seed, sideways=sideways)
    policy, _ = learned_from(log, algorithm, head="gaussian", steps=1000, seed=seed, lr=step_size)
    seen = contexts(1000, Generator().manual_seed(seed + 1_000_000))
    with torch.no_grad():
        points = policy.law(seen)[0].unflatten(-1, (POINTS, 2))
    return float((points - curves(seen, sideways=sideways)).pow(2).mean())


SIZES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)


@effect(
    "From 200 noisy reaches it imitates others better than a larger perceptron that gives the points themselves.",
    kind="headline",
    method=imitator,
    controls={"a perceptron of all points": bc},
    step_sizes=SIZES,
    criteria=[Less("squared error", times=0.7)],
    trials=2,
    cost="slow",
    note="Reaches of 20 points in a plane with errors of 0.05, to which the shape of the way is given.",
)
def imitates(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return {"squared error": error(algorithm, seed, step_size, sideways=False)}


@effect(
    "Reaches that bow out sideways are beyond it: no force acts along a coordinate in which start and goal agree.",
    kind="limit",
    method=bc,
    controls={"movements": imitator},
    step_sizes=SIZES,
    criteria=[Less("squared error", times=0.7)],
    seeds=5,
    trials=1,
    cost="slow",
    note="The method's place is taken by the perceptron, which is better here.",
)
def sideways(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return {"squared error": error(algorithm, seed, step_size, sideways=True)}


@effect(
    "With a sparse reward it learns to reach from fewer steps than PPO that gives as many displacements a decision.",
    kind="headline",
    method=lambda: ndp(position=(0, 1), steps=8),
    controls={"PPO with 5 displacements": lambda: control_ppo(gamma=0.99**5, lam=0.95, clip=0.1, entropy=0.0, steps=8)},
    step_sizes=(1e-3, 3e-3, 1e-2),
    criteria=[More("targets reached", by=0.0)],
    seeds=5,
    trials=1,
    budget="steps",
    cost="slow",
    refuted=True,
    note="Share of episodes that reach the target, mean over 60 batches of 64 copies. The way to a target is linear in "
    "what is seen, which a perceptron learns at once; a movement must learn where the target is.",
)
def reaches_sooner(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    world, reached = ChunkedWorld(Reach(num_envs=64), 5), list[float]()

    def watch(_: int, batch: Experience) -> None:
        over = (batch.terminated | batch.truncated).sum().clamp(min=1)
        reached.append(float(batch.reward.sum() / over))

    policy = policy_for(world, seed=seed, trunk=algorithm.trunk)
    trained(world, algorithm, policy, steps=60, lr=step_size, seed=seed, epochs=10, each=watch)
    return {"targets reached": sum(reached) / len(reached), "steps": 64.0 * 8 * 5 * 60}


@claim(
    "Without forces it is a critically damped spring from the present state, and does not overshoot.",
    kind="identity",
    baseline="the closed form of the spring; twice as many of Euler's steps",
)
def spring() -> Finding:
    begin, speed, goal, rate = -0.7, 0.4, 1.1, 12.5
    off, beyond = {}, 0.0
    for steps in (1000, 2000):
        way = MovementPrimitive(actions=100, output="position", steps=steps).responses()[:, :3]
        time = torch.arange(1, 101, dtype=torch.float64) / 100
        decay = (-rate * time).exp()
        exact = goal + ((begin - goal) * (1 + rate * time) + speed * time) * decay
        off[steps] = float((way @ torch.tensor([begin, speed, goal], dtype=torch.float64) - exact).abs().max())
        beyond = max(beyond, float((way @ torch.tensor([begin, 0, goal], dtype=torch.float64)).max()) - goal)
    return Finding(
        measured={"error": off[2000], "error of half the steps": off[1000], "beyond the goal": beyond},
        criterion="error < 0.01, and within 5 % half that of half the steps; from rest, not beyond the goal",
        holds=off[2000] < 0.01 and abs(off[1000] / off[2000] / 2 - 1) < 0.05 and beyond <= 1e-12,
    )


@claim(
    "Whatever its forces, a long movement ends at the goal.",
    kind="identity",
    baseline="a movement that is ten times shorter",
)
def ends_at_the_goal() -> Finding:
    weights = 200 * torch.randn(100, 3, generator=Generator().manual_seed(0)).double()
    off = {}
    for time in (1.0, 10.0):
        way = MovementPrimitive(actions=1, output="position", steps=1000, time=time).responses()[-1]
        off[time] = float((way[2] - 1 + weights @ way[3:]).abs().max())
    return Finding(
        measured={"largest distance": off[10.0], "largest distance, of the shorter": off[1.0]},
        criterion="from 0 to 1 with 100 random forces, normal with 200: distance < 1e-3; of the shorter > 0.1",
        holds=off[10.0] < 1e-3 and off[1.0] > 0.1,
    )


def written_out(spec: MovementPrimitive, begin: float, speed: float, goal: float, weights: Tensor) -> list[float]:
    """Returns the displacements of a movement, step by step."""
    dt, x, y, z = spec.time / spec.steps, 1.0, begin, speed
    centres = [math.exp(-spec.decay * n / (spec.basis - 1)) for n in range(spec.basis)]
    places = [y]
    for _ in range(spec.steps):
        x -= spec.decay * x * dt
        psi = [math.exp(-(spec.basis**1.5) / (spec.decay * c) * (x - c) ** 2) for c in centres]
        force = x * (goal - begin) * sum(float(w) * p for w, p in zip(weights, psi, strict=True)) / sum(psi)
        y, z = y + dt * z, z + dt * (spec.stiffness * (spec.stiffness / 4 * (goal - y) - z) + force)
        places.append(y)
    points = places[:: spec.steps // spec.actions]
    return [after - before for before, after in itertools.pairwise(points)]


@claim(
    "A decision is the points of Euler's steps, from the position and the velocity that are observed.",
    kind="identity",
    baseline="the steps written out; the same from rest",
)
def steps_written_out() -> Finding:
    spec = MovementPrimitive(position=(3, 0), velocity=(1, 2), actions=5, basis=4, hidden=(8,))
    policy = policy_for(ChunkedWorld(Reach(), 5), seed=0, trunk=spec)
    seen = torch.randn(6, 4, generator=Generator().manual_seed(1))
    with torch.no_grad():
        found = policy.law(seen)[0].unflatten(-1, (5, 2)).double()
        raw = policy.actor.net(seen).unflatten(-1, (2, 5)).double()  # type: ignore[operator, union-attr]
    off = {"observed": 0.0, "rest": 0.0}
    for row in range(6):
        for c, (place, way) in enumerate(zip(spec.position, spec.velocity, strict=True)):
            goal, weights = float(raw[row, c, 0]), spec.scale * raw[row, c, 1:]
            for name, speed in {"observed": float(seen[row, way]), "rest": 0.0}.items():
                exact = written_out(spec, float(seen[row, place]), speed, goal, weights)
                off[name] = max(off[name], float((found[row, :, c] - torch.tensor(exact)).abs().max()))
    return Finding(
        measured={"largest difference": off["observed"], "from rest": off["rest"]},
        criterion="largest difference < 1e-5; from rest > 0.01",
        holds=off["observed"] < 1e-5 and off["rest"] > 0.01,
    )


@mutation("the force does not fall with the phase", kills=ends_at_the_goal)
def lasting_force(replace: Replace) -> None:
    right = MovementPrimitive.phases

    def phases(self: MovementPrimitive) -> Tensor:
        found = right(self)
        return found / found.sum(1, keepdim=True)

    replace(MovementPrimitive, "phases", phases)


@mutation("a movement begins at 0 instead of the present position", kills=steps_written_out)
def from_the_origin(replace: Replace) -> None:
    right = MovementPrimitive.responses
    replace(MovementPrimitive, "responses", lambda self: right(self) * (torch.arange(3 + self.basis) > 0))
