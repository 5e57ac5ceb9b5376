"""Whole episodes of a control policy, for its score."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium.vector import VectorEnv

from polopt.metrics import t_interval
from polopt.sampling import PolicyInput
from polopt.training.control.returns import ReturnScore
from polopt.training.control.source import StepSource


def played(
    environments: VectorEnv,
    policy: Any,
    episodes: int,
    *,
    seed: int,
    greedy: bool,
    policy_input: PolicyInput | None = None,
    sequence: int = 1,
) -> ReturnScore:
    """Plays whole episodes, whose numbers by copy differ by one at most, so that short ones are not preferred.

    policy_input: what the policy reads beside the observation. sequence: actions in turn after one look at the state.
    """
    generator = torch.Generator().manual_seed(seed)
    source = StepSource(environments, policy, seed=seed % 2**31, generator=generator, policy_input=policy_input)
    copies = environments.num_envs
    targets = [episodes // copies + (i < episodes % copies) for i in range(copies)]
    finished: list[list[tuple[float, int]]] = [[] for _ in range(copies)]
    while any(len(found) < target for found, target in zip(finished, targets, strict=True)):
        batch = source.fragments(64, greedy=greedy, sequence=sequence)
        extras = batch.extras
        for row, column in (batch.terminated | batch.truncated).nonzero().tolist():
            if len(finished[row]) < targets[row]:
                ended = float(extras["episode_return"][row, column]), int(extras["episode_length"][row, column])
                finished[row].append(ended)
    found = [episode for row in finished for episode in row]
    returns = [value for value, _ in found]
    return ReturnScore(returns, [length for _, length in found], t_interval(returns))
