"""A source of experience from environments that are stepped, all copies at once."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Generator, Tensor

from polopt.errors import RunError
from polopt.experience import Experience
from polopt.policies.compiled import CompiledActor
from polopt.policies.network import NetworkPolicy
from polopt.policies.open_loop import OpenLoop
from polopt.sampling import PolicyInput

# The entry of a dictionary of observations that marks the choices that may be taken.
ACTION_MASK = "action_mask"
# Entries of the observations of a goal-conditioned environment, in the order in which they are flattened.
GOAL_KEYS = ("observation", "achieved_goal", "desired_goal")
# The entry that holds what a simulator tells beside the observation, which critics may read and the policy does not.
PRIVILEGED = "privileged"


class Observed(NamedTuple):
    """Observations of an environment's copies, a row each.

    state: the numbers that the policy reads, [N, D]. legal: choices that may be taken, [N, n] bool, where the
    environment gives them. privileged: what it tells of itself beside them, [N, P], where it does.
    """

    state: Tensor
    legal: Tensor | None
    privileged: Tensor | None


class StepSource:
    """A source of fragments of `rows` copies of an environment, played by the current policy.

    environments: of any autoreset mode. With next-step autoreset the step after an episode's end resets the copy, and
    its action decides nothing; with same-step autoreset and without any, which the source then does itself, the next
    decision begins the next episode. Environments that return tensors get tensors, on their own device.
    seed: of the environments. generator: of the actions. training: whether the policy's normaliser of observations
    counts those of the fragments; it normalises with those of the fragments before. policy_input: what the policy reads
    beside the observation, drawn for each episode.

    Environments cannot be saved. So all copies are reset whenever the position is read for a checkpoint, in an
    undisturbed run as well as after a resume, with seeds that follow from the number of fragments so far: a resumed run
    continues bit for bit.

    Raises:
        ValueError: the environments declare no autoreset mode.
    """

    def __init__(
        self,
        environments: VectorEnv,
        policy: NetworkPolicy,
        *,
        seed: int,
        generator: Generator,
        training: bool = False,
        policy_input: PolicyInput | None = None,
    ) -> None:
        self.mode = environments.metadata.get("autoreset_mode")
        if not isinstance(self.mode, AutoresetMode):
            raise ValueError(
                f"StepSource: environments need metadata['autoreset_mode'], a gymnasium.vector.AutoresetMode, found "
                f"{self.mode}"
            )
        self.environments, self.policy, self.seed, self.generator = environments, policy, seed, generator
        self.normaliser = policy.normaliser if training else None
        self.rows = self.size = environments.num_envs
        self._fragment_count, self._steps, self._seconds = 0, 0, 0.0
        self._seen: Observed | None = None  # before the next step
        # The fragment, [T, N, ...], and what numpy sees of it, which is quicker to write a step into.
        self._columns: dict[str, Tensor] = {}
        self._arrays: dict[str, np.ndarray] = {}
        self._actor = CompiledActor(policy) if training and policy.compiled and policy.head.noise_apart else None
        self.policy_input = policy_input
        self._plan: OpenLoop | None = None
        self._width = 0 if policy_input is None else policy_input.width(policy.space)

    def fragments(
        self, steps: int, *, greedy: bool = False, actor: NetworkPolicy | None = None, sequence: int = 1
    ) -> Experience:
        """Plays `steps` further steps, T, of each of the N copies; the most likely action in each if greedy.

        actor: the policy that acts, in place of the learner.
        sequence: actions that it takes in turn after one look at the state; a plan goes on in the next fragment.

        Returns mask, rollout_logp, reward, terminated and truncated [N, T], group [N], `extras["observation"]` [N, T +
        1, D], `extras["action"]` [N, T] or [N, T, A], and `extras["episode_return"]` and `extras["episode_length"]` [N,
        T], of the episode that ended with that decision, 0 elsewhere. Where choices can be illegal,
        `extras["legal"]` [N, T, n]; where steps have info["cost"], [N] or [N, K], `extras["cost"]` [N, T, K]; where
        observations have an entry `privileged`, that before and after each decision, `extras["privileged"]` and
        `extras["final_privileged"]` [N, T, P]; and `extras["final_observation"]` [N, T, D], the observation after each
        decision, where `observation` already has the next episode's first. What the policy reads beside the observation
        is `extras[NAME]` [N, T, K], and, if decisions change it, `extras["final_NAME"]`, that after each one.
        """
        begun = time.perf_counter()
        if self._seen is None:
            self._reset()
        self._resets = self._over.clone()
        if sequence == 1:
            self._plan = None
        elif self._plan is None or self._plan.length != sequence:
            self._plan = OpenLoop(self.rows, sequence)
        assert self._seen is not None
        if self.normaliser is not None:
            self.normaliser.advance()
        if len(self._columns.get("reward", ())) != steps:
            self._columns, self._arrays = {}, {}
        player = self.policy if actor is None else actor
        decide = player.act
        if actor is None and self._actor is not None:
            self._actor.begin()
            decide = self._actor.act
        now = self._seen
        self._write("observation", 0, now.state, steps + 1)
        for t in range(steps):
            seen, legal = self._read(t, steps, now, greedy)
            if self._plan is None:
                acted = decide(seen, self.generator, greedy=greedy, legal=legal)
            else:
                acted = self._plan.act(player, seen, self.generator, greedy=greedy)
            self._write("action", t, acted.action, steps)
            self._write("rollout_logp", t, acted.logp, steps)
            now = self._step(t, steps, acted.action)
            if self.policy_input is not None or self._plan is not None:
                self._begin_episodes(t, steps, acted.action)
            self._write("observation", t + 1, now.state, steps + 1)
        self._seen = now._replace(state=self._columns["observation"][steps].clone())
        self._fragment_count += 1
        batch = self._batch(steps)
        self._steps += int(batch.mask.sum())
        if self.normaliser is not None:
            self.normaliser.observe(batch.extras["observation"][:, :-1][batch.mask])
        self._seconds += time.perf_counter() - begun
        return batch

    def fragments_by(self, actor: NetworkPolicy, steps: int) -> Experience:
        """Plays as `fragments`, by another policy."""
        return self.fragments(steps, actor=actor)

    def _read(self, t: int, steps: int, now: Observed, greedy: bool) -> tuple[Tensor, Tensor | None]:
        """Writes what the environments show before step t. Returns what the policy reads, and the legal choices."""
        device, legal = self.policy.device, now.legal
        for name, value in (("legal", legal), (PRIVILEGED, now.privileged)):
            if value is not None:
                self._write(name, t, value, steps)
        seen = self._columns["observation"][t].to(device)
        if self.policy_input is not None:
            given = self.policy_input.most_likely(self._given) if greedy else self._given
            self._write(self.policy_input.name, t, given, steps)
            seen = torch.cat([seen, given.to(seen)], -1)
        return seen, None if legal is None else legal.to(device)

    def _write(self, name: str, t: int, value: Tensor | np.ndarray, size: int) -> None:
        """Writes a column of the fragment; the first one allocates all of them, [size, N, ...]."""
        if isinstance(value, np.ndarray) and (array := self._arrays.get(name)) is not None:
            array[t] = value
            return
        given = value if isinstance(value, Tensor) else torch.as_tensor(value)
        columns = self._columns.get(name)
        if columns is None:
            device = self._columns["observation"].device if self._columns else given.device
            columns = self._columns[name] = given.new_empty((size, *given.shape), device=device)
            if device.type == "cpu":
                self._arrays[name] = columns.numpy()
        columns[t].copy_(given)

    def _reset(self) -> None:
        found, _ = self.environments.reset(seed=(self.seed + 1_000_003 * self._fragment_count) % 2**31)
        self._seen = observed(found)
        observation = self._seen.state
        self._native = isinstance(_observation_of(found), Tensor)
        self._over = torch.zeros(self.rows, dtype=torch.bool, device=observation.device)
        self._return, self._length = observation.new_zeros(self.rows), observation.new_zeros(self.rows)
        self._plan = None
        if self.policy_input is not None:
            given = self.policy_input.draw(self.rows, self._width, self.generator)
            self._given = given.to(observation.device, copy=True)

    def _begin_episodes(self, t: int, steps: int, action: Tensor) -> None:
        """Changes what the policy reads beside the observation after step t, anew where an episode begins, where it
        looks again, too."""
        over = self._columns["terminated"][t] | self._columns["truncated"][t]
        begins = over
        if self.mode == AutoresetMode.NEXT_STEP:  # the step after an episode's last one resets the copy
            begins, self._resets = self._resets, over & ~self._resets
        if self._plan is not None:
            self._plan.drop(begins)
        if self.policy_input is None:
            return
        if self.policy_input.changes:
            read, device = self._columns["observation"][t], self._given.device
            read, action = read.to(device), action.to(device)
            self._given = self.policy_input.after(self._given, read, action, self.generator, self.policy)
            self._write(f"final_{self.policy_input.name}", t, self._given, steps)
        if begins.any():
            drawn = self.policy_input.draw(int(begins.sum()), self._width, self.generator)
            self._given[begins] = drawn.to(self._given)

    def _step(self, t: int, steps: int, action: Tensor) -> Observed:
        """Steps all copies. Returns what they show before the next step."""
        found, reward, terminated, truncated, info = self.environments.step(
            within(self.environments, action, native=self._native)
        )
        self._write("reward", t, reward if "reward" in self._columns else _tensor(reward), steps)
        self._write("terminated", t, terminated, steps)
        self._write("truncated", t, truncated, steps)
        over = torch.as_tensor(terminated | truncated)
        self._write_cost(t, steps, info, over)
        final = now = observed(found)
        if over.any() and self.mode == AutoresetMode.SAME_STEP:
            final = _with_final(now, info, over)
        elif over.any() and self.mode == AutoresetMode.DISABLED:
            final = Observed(*(None if value is None else value.clone() for value in now))  # type: ignore[arg-type]
            mask = over if self._native else over.numpy()
            now = observed(self.environments.reset(options={"reset_mask": mask})[0])
        if self.mode != AutoresetMode.NEXT_STEP:
            self._write("final_observation", t, final.state, steps)
        if final.privileged is not None:
            self._write(f"final_{PRIVILEGED}", t, final.privileged, steps)
        return now

    def _write_cost(self, t: int, steps: int, info: Mapping[str, Any], over: Tensor) -> None:
        """Writes the costs of a step, 0 of one without; after an episode's last step, info may be the next one's."""
        final = info.get("final_info")
        found, last = info.get("cost"), final.get("cost") if isinstance(final, Mapping) else None
        if found is None and last is None:
            if "cost" in self._columns:
                self._columns["cost"][t] = 0
            return
        cost = _tensor(last if found is None else found).reshape(self.rows, -1)
        if last is not None:
            cost = torch.where(over[:, None], _tensor(last).reshape(self.rows, -1), cost)
        first = "cost" not in self._columns
        self._write("cost", t, cost, steps)
        if first:
            self._columns["cost"][:t] = 0

    def _batch(self, steps: int) -> Experience:
        """Returns the fragment, [N, T], on the policy's device. Decisions of copies that are being reset are masked."""
        columns = self._columns
        reward, terminated, truncated = (columns[n].clone() for n in ("reward", "terminated", "truncated"))
        mask = torch.ones_like(terminated)
        ended = {"episode_return": torch.zeros_like(reward), "episode_length": torch.zeros_like(reward)}
        begun = 0
        for t in self._turns(terminated | truncated):
            self._return, self._length = self._return + reward[begun:t].sum(0), self._length + (t - begun)
            begun = t + 1
            if self.mode == AutoresetMode.NEXT_STEP:
                mask[t] = ~self._over
                terminated[t] &= mask[t]
                truncated[t] &= mask[t]
                reward[t].masked_fill_(self._over, 0)
                if "cost" in columns:
                    columns["cost"][t].masked_fill_(self._over[:, None], 0)
            truncated[t] &= ~terminated[t]
            self._over = terminated[t] | truncated[t]
            self._return, self._length = self._return + reward[t], self._length + mask[t]
            ended["episode_return"][t] = torch.where(self._over, self._return, 0)
            ended["episode_length"][t] = torch.where(self._over, self._length, 0)
            self._return = self._return.masked_fill(self._over, 0)
            self._length = self._length.masked_fill(self._over, 0)
        self._return, self._length = self._return + reward[begun:].sum(0), self._length + (steps - begun)
        self._over = terminated[-1] | truncated[-1]
        fields = ("reward", "terminated", "truncated", "rollout_logp")
        extras = {name: value for name, value in columns.items() if name not in fields} | ended
        return Experience(
            mask=_rows(mask),
            rollout_logp=_rows(columns["rollout_logp"]),
            reward=_rows(reward),
            terminated=_rows(terminated),
            truncated=_rows(truncated),
            support=self.policy.head.support,
            group=torch.arange(self.rows),
            extras={name: _rows(value) for name, value in extras.items()},
        ).to(self.policy.device)

    def _turns(self, over: Tensor) -> list[int]:
        """Returns the steps with which an episode ends, and those that reset a copy."""
        turns = over.any(1)
        if self.mode == AutoresetMode.NEXT_STEP:
            turns = turns | torch.cat([self._over.any()[None], turns[:-1]])
        found: list[int] = turns.nonzero().flatten().tolist()
        return found

    def usage(self) -> dict[str, float]:
        """Returns the decisions sampled and the seconds spent so far."""
        return {"sampled": self._steps, "seconds/rollout": self._seconds}

    def state(self) -> dict[str, int]:
        """Returns the number of fragments so far; the next one begins with a reset of every copy."""
        self._seen = None
        return {"fragments": self._fragment_count}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned."""
        self._fragment_count, self._seen = state["fragments"], None


def _rows(columns: Tensor) -> Tensor:
    """Returns a copy, [N, T, ...], of columns [T, N, ...], which the next fragment writes again."""
    return columns.transpose(0, 1).clone(memory_format=torch.contiguous_format)


def _observation_of(found: Any) -> Any:
    """Returns the observations of one copy or of all; those of goal-conditioned environments flattened."""
    if not isinstance(found, Mapping):
        return found
    if GOAL_KEYS[1] not in found:
        return found["observation"]
    parts = [found[key] for key in GOAL_KEYS]
    join: Any = torch.cat if isinstance(parts[0], Tensor) else np.concatenate
    # Goals are vectors, whose copies are stacked in front.
    batch = parts[1].shape[:-1]
    return join([part.reshape(*batch, -1) for part in parts], -1)


def observed(found: Any) -> Observed:
    """Returns what observations of all copies show."""
    legal, told = (found.get(key) if isinstance(found, Mapping) else None for key in (ACTION_MASK, PRIVILEGED))
    return Observed(
        _tensor(_observation_of(found)),
        None if legal is None else torch.as_tensor(legal).bool(),
        None if told is None else _tensor(told),
    )


def _with_final(now: Observed, info: Mapping[str, Any], over: Tensor) -> Observed:
    """Returns what copies show, of the episodes that are over what they last showed."""
    found = info.get("final_obs")
    if found is None:
        raise RunError("environments with same-step autoreset need info['final_obs'], found none")
    if isinstance(found, np.ndarray) and found.dtype == object:  # one entry a copy, None where nothing ended
        rows = [found[i] for i in over.nonzero().flatten().tolist()]
        last = observed(_stacked(rows))
    else:
        every = observed(found)
        last = Observed(*(None if value is None else value[over.to(value.device)] for value in every))  # type: ignore[arg-type]
    final = Observed(now.state.clone(), now.legal, None if now.privileged is None else now.privileged.clone())
    final.state[over] = last.state.to(final.state)
    if final.privileged is not None and last.privileged is not None:
        final.privileged[over] = last.privileged.to(final.privileged)
    return final


def _stacked(rows: list[Any]) -> Any:
    """Stacks observations of several copies, arrays or dictionaries of them."""
    if isinstance(rows[0], Mapping):
        return {key: np.stack([row[key] for row in rows]) for key in rows[0]}
    return np.stack(rows)


def _tensor(values: Any) -> Tensor:
    """Converts numbers to float32, without a copy if they are; observations of any shape [N, ...] to [N, D]."""
    found = torch.as_tensor(values if isinstance(values, Tensor) else np.asarray(values)).float()
    return found if found.ndim < 2 else found.flatten(1)


def within(environments: VectorEnv, action: Tensor, *, native: bool) -> Any:
    """Converts actions to the environments' format; those of a box are clipped to its bounds.

    native: whether the environments take tensors.
    """
    space: Any = environments.single_action_space
    if native:
        if hasattr(space, "n"):
            return action + int(space.start)
        low, high = (torch.as_tensor(b.reshape(-1), device=action.device) for b in (space.low, space.high))
        return action.clamp(low, high).reshape(-1, *space.shape)
    values = action.cpu().numpy()
    if hasattr(space, "n"):
        return values + space.start
    return np.minimum(np.maximum(values, space.low.reshape(-1)), space.high.reshape(-1)).reshape(-1, *space.shape)
