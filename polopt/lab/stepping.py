"""Training in environments that step all copies at once, small enough for claims."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from gymnasium.spaces import Dict
from torch import Generator, Tensor

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.networks import Space
from polopt.policies.head import HeadName
from polopt.policies.network import NetworkPolicy
from polopt.sampling import PolicyInput, policy_input_of
from polopt.sampling.behaviour import single_decisions
from polopt.step_source import PRIVILEGED, StepSource
from polopt.worlds.control.rule import ControlRule
from polopt.worlds.control.world import StepWorld, states


def policy_for(
    world: StepWorld,
    *,
    seed: int,
    head: HeadName | None = None,
    policy_input: PolicyInput | None = None,
    **settings: Any,
) -> NetworkPolicy:
    """Returns a policy for a world's spaces, as a recipe makes it.

    policy_input: what it reads beside the observation.
    """
    decided: Any = world.single_action_space
    shown: Any = world.single_observation_space
    entries: dict[str, Any] = dict(shown.spaces) if isinstance(shown, Dict) else {"observation": shown}
    sizes = {name: math.prod(entry.shape) for name, entry in entries.items()}
    settings |= {"observations": sizes["observation"], "privileged": sizes.get(PRIVILEGED, 0)}
    if hasattr(decided, "n"):
        settings["actions"] = int(decided.n)
    else:
        settings |= {name: getattr(decided, name).reshape(-1).tolist() for name in ("low", "high")}
        settings["dimensions"] = len(settings["low"])
    if policy_input is not None:
        space = Space(settings["observations"], settings.get("actions"), settings.get("dimensions"))
        settings["inputs"] = {policy_input.name: policy_input.width(space)}
    return NetworkPolicy(head=head, seed=seed, **settings)


def source_of(
    world: StepWorld,
    policy: NetworkPolicy,
    seed: int,
    policy_input: PolicyInput | None = None,
    *,
    training: bool = True,
) -> StepSource:
    """Returns a source of fragments of a world. training: whether the policy's normaliser counts what is seen."""
    draw = Generator().manual_seed(seed)
    return StepSource(world, policy, seed=seed, generator=draw, training=training, policy_input=policy_input)


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
    given = policy_input_of(algorithm.sampling)
    source, shuffle = source_of(world, policy, seed, policy_input=given), Generator().manual_seed(seed + 1)
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
    seen, draw = states(world.reset(seed=seed)[0]), Generator().manual_seed(seed)
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
        found["next_observation"] = states(info.get("final_obs", after))
        if law is not None:
            found |= {"teacher_mean": law[0], "teacher_log_std": law[1].expand_as(law[0])}
        for name, value in found.items():
            columns.setdefault(name, []).append(value)
        seen = states(after)
    return {name: torch.cat(values) for name, values in columns.items()}


@torch.no_grad()
def returns_of(
    world: StepWorld,
    policy: NetworkPolicy,
    *,
    seed: int,
    greedy: bool = True,
    policy_input: PolicyInput | None = None,
) -> Tensor:
    """Returns the undiscounted return of the first episode of each copy, [N], under a policy.

    policy_input: what it reads beside the observation.
    """
    batch = source_of(world, policy, seed, policy_input, training=False).fragments(world.horizon, greedy=greedy)
    over = (batch.terminated | batch.truncated).long()
    alive = over.cumsum(1) == over  # none has ended before
    return (batch.reward.double() * alive).sum(1)
