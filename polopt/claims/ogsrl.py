"""These programs measure what the paper of OGSRL claims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.dosing import HORIZON, careful_log, treated
from polopt.lab.effects import More, effect
from polopt.lab.stepping import policy_for, returns_of, trained
from polopt.lab.transitions import Log
from polopt.methods.ogsrl import ogsrl
from polopt.methods.ppo import control_ppo
from polopt.metrics import wilson
from polopt.policies.network import NetworkPolicy
from polopt.worlds.control import DensityRegion, LoggedModel

EPISODES, COPIES, BATCHES = 100, 16, 150
# The treatment of a side, None for the careful doses, and its mean return in the model that it learned in.
Side = Callable[[int, float], tuple[Any, float]]


def model_of(log: Log, *, outside: float | None, copies: int = COPIES) -> LoggedModel:
    return LoggedModel(copies, log=log, outside=outside, bandwidth=0.035, horizon=HORIZON)


def imitated(world: LoggedModel, log: Log, seed: int) -> NetworkPolicy:
    """Returns a policy of the likelihood of the logged doses, 300 minibatches."""
    policy, draw = policy_for(world, seed=seed, head="gaussian", hidden=(32, 32)), Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(policy.parameters(), 1e-2)
    for _ in range(300):
        rows = torch.randint(len(log["reward"]), (256,), generator=draw)
        logp = policy.head.logp(policy.law(log["observation"][rows]), log["action"][rows])
        optimiser.zero_grad()
        (-logp.mean()).backward()
        optimiser.step()
    return policy


def in_model(algorithm: Callable[[], Algorithm], outside: float | None) -> Side:
    def train(seed: int, lr: float) -> tuple[Any, float]:
        log = careful_log(EPISODES, seed)
        world = model_of(log, outside=outside)
        policy = imitated(world, log, seed)
        trained(world, algorithm(), policy, steps=BATCHES, lr=lr, seed=seed)
        return policy, float(returns_of(world.again(100), policy, seed=seed).mean())

    return train


def guarded() -> Algorithm:
    return ogsrl(limits=(0.01, 0.1), gamma=0.95)


def unguarded() -> Algorithm:
    return control_ppo(gamma=0.95, lam=0.95, clip=0.2, entropy=0.0, steps=HORIZON)


def as_logged() -> Side:
    return lambda seed, lr: (None, 0.0)


@effect(
    "Learned in a model of a log, it treats patients better than the log's policy, and than the same learner without "
    "the region and costs, whom the model misleads.",
    kind="headline",
    method=lambda: in_model(guarded, 0.05),
    controls={
        "PPO in the model without a region": lambda: in_model(unguarded, None),
        "the logged policy": as_logged,
    },
    criteria=[More("return", by=0.1)],
    best=More("return in the model", by=0.0),
    step_sizes=(3e-4, 1e-3, 3e-3),
    trials=1,
    seeds=12,
    cost="slow",
    note="100 logged episodes of careful doses; the return of usual patients over 20 decisions, in reality. Stronger "
    "doses were given where severity was low, which a model by the nearest transition takes for what they do. Step "
    "sizes are the best by the return in the model that a side learns in: without reality there is nothing else. With "
    "a bandwidth of 0.07, twice as much, the region has harmful doses, and some runs find them. CQL, which needs no "
    "model, got -2.1 to -2.4 on three other seeds, where this got -2.0 to -2.1 and the log's policy -2.4. On five "
    "seeds before, it led on each; without a region some runs end well and others at -90, so that the interval of that "
    "lead was -12 to 95: hence 12.",
)
def better_than_logged(side: Side, *, seed: int, step_size: float) -> dict[str, float]:
    policy, in_its_model = side(seed, step_size)
    return {"return": treated(policy, seed), "return in the model": in_its_model}


def everywhere(self: DensityRegion, points: Tensor) -> Tensor:
    return torch.ones(len(points), dtype=torch.bool)


@mutation("no state and action is outside of the region", kills=better_than_logged)
def no_outside(replace: Replace) -> None:
    replace(DensityRegion, "inside", everywhere)


def points_of(world: LoggedModel, log: Log) -> Tensor:
    """Returns a log's (s, a) in the units of a world's region."""
    return world.scaled(log["observation"], log["action"])


@claim(
    "The region has as much of what the same policy does later as of the log, and little of what it does not do.",
    kind="part",
    baseline="the smallest box around the log",
)
def coverage() -> Finding:
    inside, strange, boxed = 0, 0, 0
    for seed in range(5):
        log, later = careful_log(EPISODES, seed), careful_log(EPISODES, seed + 100)
        world = model_of(log, outside=0.05, copies=1)
        assert world.region is not None
        inside += int(world.region.inside(points_of(world, later)).sum())
        draw = Generator().manual_seed(seed)
        other = 2 * torch.rand(later["action"].shape, generator=draw) - 1
        points = points_of(world, {**later, "action": other})
        strange += int(world.region.inside(points).sum())
        boxed += int((points.abs() <= 1).all(-1).sum())
    count = 5 * EPISODES * HORIZON
    held = wilson(inside, count)
    return Finding(
        measured={
            "of later decisions": held.estimate,
            "of uniform doses": strange / count,
            "in the box": boxed / count,
        },
        intervals={"of later decisions": (held.low, held.high)},
        criterion="5 logs, outside = 0.05: 0.93 to 0.97 of later decisions; of uniform doses < 0.5, and of these > 0.8 "
        "in the box",
        holds=0.93 <= held.estimate <= 0.97 and strange / count < 0.5 and boxed / count > 0.8,
    )


@mutation("the region leaves out what is densest", kills=coverage)
def least_dense(replace: Replace) -> None:
    replace(DensityRegion, "inside", lambda self, points: self.density(points) <= self.least)
