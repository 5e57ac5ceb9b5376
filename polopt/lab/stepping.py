"""Training in environments that step all copies at once, small enough for claims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.policies.heads import HeadName
from polopt.policies.network import NetworkPolicy
from polopt.sampling.behaviour import single_decisions
from polopt.worlds.control.rule import ControlRule
from polopt.worlds.control.world import StepWorld


def policy_for(world: StepWorld, *, seed: int, head: HeadName | None = None, **settings: Any) -> NetworkPolicy:
    """Returns a policy for a world's spaces, as a recipe makes it."""
    space: Any = world.single_action_space
    size = int(torch.tensor(world.single_observation_space.shape).prod())
    if hasattr(space, "n"):
        return NetworkPolicy(observations=size, actions=int(space.n), head=head, seed=seed, **settings)
    bounds = {"low": space.low.reshape(-1).tolist(), "high": space.high.reshape(-1).tolist()}
    return NetworkPolicy(observations=size, dimensions=len(bounds["low"]), head=head, seed=seed, **bounds, **settings)


class FragmentWorldSource:
    """A source of fragments of a world, as `sampling.source_protocols.FragmentSource`, played by a policy."""

    def __init__(self, world: StepWorld, policy: NetworkPolicy, seed: int) -> None:
        self.world, self.policy, self.generator = world, policy, Generator().manual_seed(seed)
        self.seen = world.reset(seed=seed)[0].flatten(1)

    def fragments(self, steps: int) -> Experience:
        """Plays `steps` further steps of every copy; see `FragmentSource`."""
        return self.fragments_by(self.policy, steps)

    def fragments_by(self, actor: NetworkPolicy, steps: int) -> Experience:
        """Plays as `fragments`, by another policy; see `ActorSource`."""
        columns: dict[str, list[Tensor]] = {}
        if self.policy.normaliser is not None:
            self.policy.normaliser.advance()
        for _ in range(steps):
            acted = actor.act(self.seen, self.generator)
            after, reward, terminated, truncated, info = self.world.step(acted.action)
            found = {"observation": self.seen, "action": acted.action, "rollout_logp": acted.logp, "reward": reward}
            found |= {"terminated": terminated, "truncated": truncated}
            found["final_observation"] = info.get("final_obs", after).flatten(1)
            if "cost" in info:
                found["cost"] = info["cost"]
            for name, value in found.items():
                columns.setdefault(name, []).append(value)
            self.seen = after.flatten(1)
        columns["observation"].append(self.seen)
        rows = {name: torch.stack(values, 1) for name, values in columns.items()}
        if self.policy.normaliser is not None:
            self.policy.normaliser.observe(rows["observation"][:, :-1].flatten(0, 1))
        names = ("observation", "action", "final_observation", "cost")
        extras = {name: rows.pop(name) for name in names if name in rows}
        mask, group = torch.ones_like(rows["terminated"]), torch.arange(len(rows["reward"]))
        fields: dict[str, Any] = {"mask": mask, "group": group, "extras": extras, **rows}
        return Experience(support=self.policy.head.support, **fields)


def trained(
    world: StepWorld,
    algorithm: Algorithm,
    policy: NetworkPolicy,
    *,
    steps: int,
    lr: float,
    seed: int,
    epochs: int = 5,
    minibatches: int = 4,
    anneal: bool = True,
    each: Callable[[int, Experience], None] = lambda step, batch: None,
) -> NetworkPolicy:
    """Trains a policy in a world by so many batches, and returns it.

    Minibatches are cut between single decisions; their number is of methods that do not set `minibatch`. lr: falls
    linearly to 0 if `anneal`. each: called with the number of each batch and the batch, after it was learned from.
    """
    source, shuffle = FragmentWorldSource(world, policy, seed), Generator().manual_seed(seed + 1)
    learned = [p for p in policy.parameters() if p.requires_grad]
    optimiser = torch.optim.Adam(learned, lr)
    outputs = algorithm.objective.required_outputs
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = lr * (1 - step / steps if anneal else 1)
        batch = algorithm.sampling(source)
        with torch.no_grad():
            before = policy.evaluate(batch, {"value"})
        fields = {"old_logp": before.logp, "value": before.value, "final_value": before.final_value}
        batch = algorithm.with_advantages(batch.replace(**fields))
        flat = single_decisions(batch)
        for _ in range(epochs):
            order = torch.randperm(len(flat.mask), generator=shuffle)
            for rows in order.tensor_split(algorithm.minibatches(len(order), minibatches)):
                part = flat[rows]
                optimiser.zero_grad()
                algorithm.objective(part, policy.evaluate(part, outputs)).loss.backward()
                torch.nn.utils.clip_grad_norm_(learned, 0.5)
                optimiser.step()
        algorithm.step()
        each(step, batch)
    return policy


@torch.no_grad()
def recorded(
    world: StepWorld,
    actor: ControlRule | NetworkPolicy,
    *,
    steps: int,
    seed: int,
    greedy: bool = False,
) -> dict[str, Tensor]:
    """Returns `steps` steps of every copy as a log [steps N, ...], as `sampling.transition_rows` reads it.

    The log of a policy with a head of normal distributions has them, too: teacher_mean, teacher_log_std [steps N, A].
    """
    seen, draw = world.reset(seed=seed)[0].flatten(1), Generator().manual_seed(seed)
    columns: dict[str, list[Tensor]] = {}
    for _ in range(steps):
        if isinstance(actor, ControlRule):
            action, law = actor(seen, draw), None
        else:
            action = actor.act(seen, draw, greedy=greedy).action
            law = actor.law(seen) if actor.head.name == "gaussian" else None
        after, reward, terminated, truncated, info = world.step(action)
        found = {"observation": seen, "action": action, "reward": reward}
        found |= {"terminated": terminated, "truncated": truncated}
        found["next_observation"] = info.get("final_obs", after).flatten(1)
        if law is not None:
            found |= {"teacher_mean": law[0], "teacher_log_std": law[1].expand_as(law[0])}
        for name, value in found.items():
            columns.setdefault(name, []).append(value)
        seen = after.flatten(1)
    return {name: torch.cat(values) for name, values in columns.items()}


@torch.no_grad()
def returns_of(world: StepWorld, policy: NetworkPolicy, *, seed: int, greedy: bool = True) -> Tensor:
    """Returns the undiscounted return of the first episode of each copy, [N], under a policy."""
    observation, _ = world.reset(seed=seed)
    generator = Generator().manual_seed(seed)
    total = torch.zeros(world.num_envs, dtype=torch.float64)
    alive = torch.ones(world.num_envs, dtype=torch.bool)
    for _ in range(world.horizon):
        action = policy.act(observation.flatten(1), generator, greedy=greedy).action
        observation, reward, terminated, truncated, _ = world.step(action)
        total += torch.where(alive, reward, 0)
        alive &= ~(terminated | truncated)
        if not alive.any():
            break
    return total
