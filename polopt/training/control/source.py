"""A source of experience from environments that are stepped, all copies at once."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Generator, Tensor

from polopt.experience import Experience
from polopt.policies.network import NetworkPolicy


class StepSource:
    """A source of fragments of `rows` copies of an environment, played by the current policy.

    environments: with next-step autoreset: the step after an episode's end resets the copy, and its action decides
    nothing. seed: of the environments. generator: of the actions. training: whether the policy's normaliser of
    observations counts those of the fragments; it normalises with those of the fragments before.

    Environments cannot be saved. So all copies are reset whenever the position is read for a checkpoint, in an
    undisturbed run as well as after a resume, with seeds that follow from the number of fragments so far: a resumed run
    continues bit for bit.
    """

    def __init__(
        self,
        environments: VectorEnv,
        policy: NetworkPolicy,
        *,
        seed: int,
        generator: Generator,
        training: bool = False,
    ) -> None:
        mode = environments.metadata.get("autoreset_mode")
        if mode != AutoresetMode.NEXT_STEP:
            raise ValueError(f"StepSource: environments need next-step autoreset, found {mode}")
        self.environments, self.policy, self.seed, self.generator = environments, policy, seed, generator
        self.normaliser = policy.normaliser if training else None
        self.rows = self.size = environments.num_envs
        self._fragment_count, self._steps, self._seconds = 0, 0, 0.0
        self._observation: Tensor | None = None

    def fragments(self, steps: int, *, greedy: bool = False) -> Experience:
        """Plays `steps` further steps, T, of each of the N copies; the most likely action in each if greedy.

        Returns mask, rollout_logp, reward, terminated and truncated [N, T], group [N], `extras["observation"]` [N, T +
        1, D], `extras["action"]` [N, T] or [N, T, A], and `extras["episode_return"]` and `extras["episode_length"]` [N,
        T], of the episode that ended with that decision, 0 elsewhere.
        """
        begun = time.perf_counter()
        if self._observation is None:
            self._reset()
        assert self._observation is not None
        if self.normaliser is not None:
            self.normaliser.advance()
        observations, columns = [self._observation], []
        for _ in range(steps):
            acted = self.policy.act(self._observation.to(self.policy.device), self.generator, greedy=greedy)
            columns.append(self._step(acted.action, acted.logp))
            observations.append(self._observation)
        self._fragment_count += 1
        self._steps += int(sum(int(column["mask"].sum()) for column in columns))
        self._seconds += time.perf_counter() - begun
        found: dict[str, Any] = {name: torch.stack([column[name] for column in columns], 1) for name in columns[0]}
        extras = {name: found.pop(name) for name in ("action", "episode_return", "episode_length")}
        extras["observation"] = torch.stack(observations, 1)
        batch = Experience(**found, group=torch.arange(self.rows), extras=extras)
        batch = batch.to(self.policy.device)
        if self.normaliser is not None:
            self.normaliser.observe(batch.extras["observation"][:, :-1][batch.mask])
        return batch

    def _reset(self) -> None:
        observation, _ = self.environments.reset(seed=(self.seed + 1_000_003 * self._fragment_count) % 2**31)
        self._observation = _tensor(observation)
        self._over = torch.zeros(self.rows, dtype=torch.bool)
        self._return, self._length = torch.zeros(self.rows), torch.zeros(self.rows)

    def _step(self, action: Tensor, logp: Tensor) -> dict[str, Tensor]:
        """Steps all copies. A copy whose episode was over is reset, and its decision is masked."""
        observation, reward, terminated, truncated, _ = self.environments.step(_within(self.environments, action))
        mask, zero = ~self._over, torch.zeros(())
        masked_reward = torch.where(mask, _tensor(reward), zero)
        terminated, truncated = torch.as_tensor(terminated) & mask, torch.as_tensor(truncated) & mask
        truncated &= ~terminated
        self._return, self._length = self._return + masked_reward, self._length + mask
        over = terminated | truncated
        ended = {
            "episode_return": torch.where(over, self._return, zero),
            "episode_length": torch.where(over, self._length, zero),
        }
        self._return, self._length = (torch.where(over, zero, x) for x in (self._return, self._length))
        self._observation, self._over = _tensor(observation), over
        fields = {
            "mask": mask,
            "rollout_logp": logp.cpu(),
            "reward": masked_reward,
            "terminated": terminated,
            "truncated": truncated,
        }
        return {**fields, "action": action.cpu(), **ended}

    def usage(self) -> dict[str, float]:
        """Returns the decisions sampled and the seconds spent so far."""
        return {"sampled": self._steps, "seconds/rollout": self._seconds}

    def state(self) -> dict[str, int]:
        """Returns the number of fragments so far; the next one begins with a reset of every copy."""
        self._observation = None
        return {"fragments": self._fragment_count}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned."""
        self._fragment_count, self._observation = state["fragments"], None


def _tensor(values: Any) -> Tensor:
    """Converts numbers of gymnasium to float32; observations of any shape [N, ...] to [N, D]."""
    found = torch.as_tensor(np.asarray(values), dtype=torch.float32)
    return found if found.ndim < 2 else found.flatten(1)


def _within(environments: VectorEnv, action: Tensor) -> Any:
    """Converts actions to the environments' format; those of a box are clipped to its bounds."""
    space: Any = environments.single_action_space
    values = action.cpu().numpy()
    if hasattr(space, "n"):
        return values + space.start
    return np.clip(values, space.low.reshape(-1), space.high.reshape(-1)).reshape(-1, *space.shape)
