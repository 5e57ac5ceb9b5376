"""Whole episodes of a control policy, for its score."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium.vector import VectorEnv

from polopt.errors import RunError
from polopt.metrics import t_interval
from polopt.sampling import PolicyInput
from polopt.step_source import StepSource
from polopt.training.control.returns import ReturnScore

# Steps that are played at once, and after which an episode that goes on is taken for one without an end.
STEPS, LONGEST = 64, 100_000


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

    Raises:
        RunError: an episode does not end within `LONGEST` steps.
    """
    generator = torch.Generator().manual_seed(seed)
    source = StepSource(environments, policy, seed=seed % 2**31, generator=generator, policy_input=policy_input)
    copies = environments.num_envs
    targets = [episodes // copies + (i < episodes % copies) for i in range(copies)]
    finished: list[list[tuple[float, int]]] = [[] for _ in range(copies)]
    running = torch.zeros(copies, dtype=torch.int64)
    while any(len(found) < target for found, target in zip(finished, targets, strict=True)):
        batch = source.fragments(STEPS, greedy=greedy, sequence=sequence)
        extras, over = batch.extras, (batch.terminated | batch.truncated).cpu()
        running = torch.where(over.any(1), 0, running + STEPS)
        if running.max() >= LONGEST:
            raise RunError(
                f"the evaluation plays whole episodes, and one did not end within {LONGEST:,} steps; give the "
                "environment a time limit, as environment.settings: {max_episode_steps: 1000}"
            )
        for row, column in over.nonzero().tolist():
            if len(finished[row]) < targets[row]:
                ended = float(extras["episode_return"][row, column]), int(extras["episode_length"][row, column])
                finished[row].append(ended)
    found = [episode for row in finished for episode in row]
    returns = [value for value, _ in found]
    return ReturnScore(returns, [length for _, length in found], t_interval(returns))
