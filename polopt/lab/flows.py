"""Flow policies in the plane, trained on given points, for claims about generative policies."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage
from polopt.experience import Experience
from polopt.lab.measure import learning
from polopt.objectives import PolicyGradient, Surrogate
from polopt.policies.flow import FlowPolicy
from polopt.policies.point_source import PointSource
from polopt.sampling import Demonstrations
from polopt.worlds.points import PointTask, modes

ROWS = 96


def source(policy: FlowPolicy, task: PointTask, seed: int, rows: int = ROWS, draws: int = 4) -> PointSource:
    """Returns a source of a task's points."""
    given = {"points": task.points, "context": task.context, "score": task.score}
    return PointSource(
        policy, task.reward, rows=rows, draws=draws, generator=torch.Generator().manual_seed(seed), **given
    )


@functools.lru_cache(maxsize=16)
def pretrained(seed: int, *, best: bool = False, count: int = 2, ask: bool = False) -> tuple[PointTask, FlowPolicy]:
    """Returns points around modes in the plane, and a flow that has learned them. best: the preferred ones alone.
    count, ask: as `modes`."""
    task = modes(count=count, ask=ask, seed=seed)
    known = preferred(task) if best else task
    policy = FlowPolicy(dimensions=2, contexts=task.contexts, hidden=(64, 64), seed=seed)
    imitation = Algorithm(
        sampling=Demonstrations(),
        credit=ConstantAdvantage(value=1.0),
        objective=Surrogate(ratio=None, trust=PolicyGradient()),
    )
    run = learning(imitation, source(policy, known, seed, 256), policy, rate=2e-3, optimiser=torch.optim.Adam)
    for _ in itertools.islice(run, 600):
        pass
    return task, policy


def preferred(task: PointTask) -> PointTask:
    """Returns the task with its preferred points alone."""
    keep = task.score > 0
    return dataclasses.replace(task, points=task.points[keep], context=task.context[keep], score=task.score[keep])


def tuned(
    algorithm: Algorithm,
    task: PointTask,
    start: FlowPolicy,
    *,
    seed: int,
    step_size: float,
    steps: int = 300,
    noise: float = 0.0,
    see: Callable[[Experience], None] = lambda batch: None,
) -> FlowPolicy:
    """Returns a flow that was trained from `start` by Adam. noise: standard deviation of what is added to rewards. see:
    called with the chosen rows of each batch."""
    policy = start.frozen().requires_grad_(True)
    there = source(policy, task, seed + 1000)
    if noise:
        draw = torch.Generator().manual_seed(seed + 2000)
        there.reward = lambda x, context: task.reward(x, context) + noise * torch.randn(len(x), generator=draw)
    run = learning(algorithm, there, policy, rate=step_size, optimiser=torch.optim.Adam, reference=start)
    for batch in itertools.islice(run, steps):
        see(batch)
    return policy


def made(policy: FlowPolicy, count: int = 2000) -> tuple[Tensor, Tensor]:
    """Returns points that a policy makes, of its contexts in turn, and their contexts."""
    context = torch.arange(count) % policy.contexts
    return policy.sample(context, torch.Generator().manual_seed(9)), context


def mean_reward(policy: FlowPolicy, task: PointTask) -> float:
    """Returns the mean reward of points that a policy makes."""
    return float(task.reward(*made(policy)).mean())
