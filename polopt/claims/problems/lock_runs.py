"""Combination locks with a log, and policies that take steps on whole batches in them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Generator, Tensor

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.lab.stepping import policy_for, returns_of
from polopt.lab.transitions import Log, LogSource
from polopt.network_training import NetworkTraining
from polopt.policies.network import NetworkPolicy
from polopt.step_source import StepSource
from polopt.updates import BatchLoss, PlainSettings, Stepper
from polopt.worlds.control import CombinationLock, LockRule
from polopt.worlds.control.world import StepWorld

HORIZON, ACTIONS, COPIES = 12, 10, 32


@functools.cache
def log_of(seed: int, epsilon: float, episodes: int = 2000, **settings: int) -> Mapping[str, Tensor]:
    """Returns transitions of the lock `seed`: right choices, but with chance epsilon a uniform one."""
    world = CombinationLock(episodes, **({"actions": ACTIONS, "code": seed, "horizon": HORIZON} | settings))  # type: ignore[arg-type]
    rule, draw = LockRule(epsilon=epsilon).prepare(world), Generator().manual_seed(seed)
    seen, _ = world.reset(seed=seed)
    found: list[dict[str, Tensor]] = []
    for _ in range(world.horizon):
        action = rule(seen, draw)
        after, reward, terminated, truncated, info = world.step(action)
        row = {"observation": seen, "next_observation": info.get("final_obs", after), "action": action}
        found.append(row | {"reward": reward, "terminated": terminated, "truncated": truncated})
        seen = after
    return {name: torch.cat([row[name] for row in found]) for name in found[0]}


class LoggedWorldSource(StepSource):
    """A source of fragments of a world, and of transitions of a log."""

    def __init__(self, world: StepWorld, policy: NetworkPolicy, seed: int, log: Log) -> None:
        super().__init__(world, policy, seed=seed, generator=Generator().manual_seed(seed), training=True)
        self._log = LogSource(log, policy.head.support, self.generator)

    def logged_transitions(self, rows: int, **settings: Any) -> Experience:
        """See `sampling.source_protocols.LoggedTransitionSource`."""
        return self._log.logged_transitions(rows, **settings)


class BatchSteps:
    """The steps of an algorithm whose rule steps on whole batches, in the order of a stage with epochs and minibatches.

    lr: of what learns from minibatches.
    """

    def __init__(self, algorithm: Algorithm, policy: NetworkPolicy, lr: float, seed: int) -> None:
        self.algorithm, self.policy, self.draw = algorithm, policy, Generator().manual_seed(seed)
        self.networks = NetworkTraining(policy, algorithm, lr, self.draw)
        self.stepper: Stepper = algorithm.update.begin(list(policy.parameters()), PlainSettings(lr=lr))

    def update(self, batch: Experience, epochs: int, minibatches: int) -> dict[str, float]:
        """Learns from a batch of the sampling part, and returns the metrics of the step on the whole of it."""
        wanted = self.algorithm.active_fields("reads") & {"value"}
        with torch.no_grad():
            before = self.policy.evaluate(batch, wanted)
        fields = {"old_logp": before.logp, "value": before.value, "final_value": before.final_value}
        batch = self.algorithm.with_advantages(batch.replace(**fields))
        record = {} if self.stepper.after_minibatches else self._whole(batch)
        for _ in range(epochs):
            for rows in torch.randperm(len(batch), generator=self.draw).chunk(minibatches):
                self._part(batch[rows])
        return self._whole(self.networks.relabelled(batch)) if self.stepper.after_minibatches else record

    def _loss(self, batch: Experience) -> BatchLoss:
        objective = self.algorithm.objective
        return BatchLoss(self.policy, objective, lambda piece: self.networks.evaluate(piece, objective), [batch])

    def _whole(self, batch: Experience) -> dict[str, float]:
        return self.stepper.step_on_batch(self._loss(batch))

    def _part(self, batch: Experience) -> None:
        self.networks.begin_minibatch()
        self.networks.step(batch)
        stepped = self.stepper.stepped
        if stepped:
            for p, gradient in zip(stepped, self._loss(batch).gradient(stepped), strict=True):
                p.grad = gradient
            self.stepper.step()
        self.networks.move_targets()


def return_of(algorithm: Algorithm, seed: int, epsilon: float, batches: int = 100) -> float:
    """Trains for `batches` batches of 32 episodes of the lock `seed`, and returns the mean return of 512 sampled
    episodes. epsilon: of the log."""
    world = CombinationLock(COPIES, actions=ACTIONS, code=seed, horizon=HORIZON)
    policy = policy_for(world, seed=seed, hidden=(64,))
    source = LoggedWorldSource(world, policy, seed, log_of(seed, epsilon))
    steps = BatchSteps(algorithm, policy, 3e-3, seed)
    for _ in range(batches):
        steps.update(algorithm.sampling(source), epochs=5, minibatches=4)
    return float(returns_of(world.again(512), policy, seed=seed + 1, greedy=False).mean())
